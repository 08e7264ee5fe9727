"""The files of a source: rows, columns and fingerprints, from the metadata of each; the columns of text files, inferred
from their rows; and what tasks read of them."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.keys import type_of_arrow
from gnomon.shadow.commit import wider
from gnomon.shadow.errors import (
    BuildFailed,
    FileChanged,
    SourceError,
    StalePointer,
    StorageError,
    UnsupportedFormat,
    UsageError,
)
from gnomon.shadow.metadata import DEEP, DigestChecks, IndexSpec, SourceFileEntry, SourceRoot
from gnomon.shadow.storage import FileInfo, OpenFile, Readable, Storage, difference, join, kept_at
from gnomon.shadow.write import stored_columns
from gnomon.sources import FORMATS, Options, Split, detect, format_of_name, open_mapped, open_source
from gnomon.sources.literals import NOTHING
from gnomon.sources.nested import WrongPath, changed_at, with_fields
from gnomon.sources.types import COMMENT, parse_ddl, to_ddl

MOST_TASKS = 10_000


def shares_of(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """The ordinals of files for each task. The largest files come first, each for the task with the fewest bytes."""
    tasks = [(0, task) for task in range(max(1, min(len(sizes), max(4 * cores, len(sizes) // 64), MOST_TASKS)))]
    shares: list[list[int]] = [[] for _ in tasks]
    for file in sorted(range(len(sizes)), key=lambda file: -sizes[file]):
        load, task = heapq.heappop(tasks)
        shares[task].append(file)
        heapq.heappush(tasks, (load + sizes[file] + 1, task))
    return shares


WHILE_LISTED = "while the source was listed"
BUT_NAMED = "but the table's metadata names it"  # of a lake table, which has no listing
READERS = 16  # files whose metadata is read at the same time
WANTED_SPLITS = 64  # of all files together; each file has at least one
LEAST_SPLIT, LARGEST_SPLIT = 8 << 20, 128 << 20  # bytes


@dataclass(frozen=True)
class Described:
    """A source file to index: its entry for the segment, its columns, mean bytes per row, bytes that the scan of the
    indexed columns reads, and the ranges for separate tasks. If only the scan can count its rows, the entry has 0 rows
    and `is_counted` is false."""

    entry: SourceFileEntry
    schema: pa.Schema
    row_bytes: int
    scan_bytes: int
    splits: Sequence[Split]
    is_counted: bool = True

    @property
    def likely_rows(self) -> int:
        return self.entry.rows if self.is_counted else self.entry.size // self.row_bytes


def detect_format(root: SourceRoot, files: Sequence[FileInfo]) -> str:
    """The format of a source, from the first bytes of its first file. UnsupportedFormat shows the bytes found."""
    with listed(root.storage, files[0]) as reader:
        return detect(reader)


def describe(
    root: SourceRoot,
    format_name: str,
    options: Options,
    partitions: bool,
    files: Sequence[FileInfo],
    indexed: Sequence[str],
) -> list[Described]:
    """Open each file and read its metadata. A damaged file, or one of another format, fails the build."""
    target = min(max(sum(info.size for info in files) // WANTED_SPLITS, LEAST_SPLIT), LARGEST_SPLIT)
    is_lake = root.source.versions is not None

    def one(info: FileInfo) -> Described:
        advice = (BUT_NAMED, Action.RESTORE_OR_REPAIR) if is_lake else (WHILE_LISTED, Action.BUILD_AGAIN)
        with listed(root.storage, info, *advice) as reader:
            with nullcontext() if is_lake else of_one_format(reader, format_name):
                source = open_source(reader, format_name, options)
            partition = root.partition_of(info.path, partitions)
            rows = source.rows
            entry = SourceFileEntry(
                info.path,
                partition,
                rows or 0,
                info.size,
                info.mtime_ns,
                source.digest,
                info.etag,
                ctime_ns=info.ctime_ns,
            )
            scanned = with_fields(source, indexed, info.path).scan_bytes(indexed)
            return Described(entry, source.schema, source.row_bytes, scanned, source.splits(target), rows is not None)

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(one, files))


def check_names(root: SourceRoot, format_name: str, files: Sequence[FileInfo]) -> None:
    """Raise UnsupportedFormat for a text file whose name has the ending of another text format: the CSV reader would
    take JSON lines as rows."""
    if not FORMATS[format_name].endings:
        return
    for info in files:
        if format_of_name(info.path) not in ("", format_name):
            raise _another(join(root.storage.root, info.path), format_of_name(info.path), format_name)


@contextmanager
def of_one_format(reader: OpenFile, format_name: str) -> Iterator[None]:
    """A context manager for a read of a source file. If the read fails and the file's first bytes are of another
    format, it raises UnsupportedFormat."""
    try:
        yield
    except SourceError as error:
        other = _format_by_bytes(reader)
        if other in ("", format_name):
            raise
        raise _another(reader.name, other, format_name) from error


def _another(path: str, other: str, format_name: str) -> UnsupportedFormat:
    cure = "name that folder as the source"
    if FORMATS[other].endings:
        cure += f", or give --format {format_name} if it is only the name"
    return UnsupportedFormat(
        f"a file of format {other} among {format_name} ones",
        path,
        expected=f"a folder whose files are of one format: {cure}",
    )


def _format_by_bytes(reader: OpenFile) -> str:
    """The format of a file by its bytes; "" where it is unknown."""
    try:
        found = detect(reader)
    except SourceError:
        return ""
    return found if FORMATS[found].magic else ""


@contextmanager
def listed(
    storage: Readable, info: FileInfo, when: str = WHILE_LISTED, action: Action = Action.BUILD_AGAIN
) -> Iterator[OpenFile]:
    """Open a file of a listing. StalePointer where the file changed or is gone; the error has `when` in its text, and
    `action` as its advice."""
    try:
        with storage.open(info.path, known=info) as reader:
            yield reader
    except (FileChanged, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        what, where = "changed" if isinstance(error, FileChanged) else "vanished", join(storage.root, info.path)
        raise StalePointer(f"the file {what} {when}", where, action=action) from None


def with_rows(described: Sequence[Described], rows: Mapping[int, int], ragged: Mapping[int, int]) -> list[Described]:
    """The files, each with its number of rows. A file that is not counted gets the scan's counts from `rows` and
    `ragged`, by ordinal. BuildFailed where the scan has no count of it."""
    counted = []
    for ordinal, one in enumerate(described):
        if not one.is_counted:
            if ordinal not in rows:
                raise BuildFailed("the scan did not count its rows; nothing was committed", one.entry.path)
            entry = replace(one.entry, rows=rows[ordinal], ragged=ragged.get(ordinal, 0))
            one = replace(one, entry=entry, is_counted=True)
        counted.append(one)
    return counted


def check_unchanged(root: SourceRoot, described: Sequence[Described], spec: IndexSpec) -> None:
    """Fail when a file changed or vanished while it was being indexed."""
    digest_checks = DigestChecks(root.storage, spec.format, spec.read_options)
    entries = [one.entry for one in described if not kept_at(one.entry.etag)]  # a store keeps the others for good
    now = {info.path: info for info in root.list()} if entries else {}
    for entry in entries:
        found = now.get(entry.path)
        if found is None or difference(entry, found) or not digest_checks.is_same(entry, found):
            raise StalePointer(
                "the file changed while it was being indexed; nothing was committed",
                join(root.storage.root, entry.path),
                action=Action.BUILD_AGAIN,
            )


def columns_of(described: Sequence[Described], known: Mapping[str, str], declared: str | None = None) -> dict[str, str]:
    """The columns of a source, with their Arrow types. `declared` has the columns that a table declares, as DDL.
    Otherwise they are the known columns, then new ones in file order; numbers of one kind have the widest type, others
    the type in the newest file."""
    if declared is not None:
        return {field.name: str(field.type) for field in parse_ddl(declared)}
    columns = dict(known)
    for one in described:
        for field in one.schema:
            columns[field.name] = wider(columns.get(field.name, ""), str(field.type))
    return columns


def is_inferred(format_name: str, options: Options) -> bool:
    """Whether columns are inferred from the rows: the files do not declare them, and the user gave no schema."""
    return FORMATS[format_name].infer is not None and "schema" not in options


def columns_in(storage: Readable, format_name: str, options: Options, info: FileInfo) -> pa.Schema:
    """The columns of one file. Its metadata is for `merged_columns`."""
    infer = FORMATS[format_name].infer
    assert infer is not None
    with listed(storage, info) as reader, of_one_format(reader, format_name):
        return infer(reader, options)


def infer_locally(root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]) -> str:
    """DDL of the columns of these files, read one after the other."""
    schemas = [columns_in(root.storage, format_name, options, info) for info in files]
    return merged_columns(format_name, files, list(enumerate(schemas)), None)


def merged_columns(
    format_name: str, files: Sequence[FileInfo], found: Sequence[tuple[int, pa.Schema]], spec: IndexSpec | None
) -> str:
    """DDL of the known columns, if the index has a spec, and the columns of these files, with types widened to hold
    every value. `found` has the columns of each file by its ordinal. UsageError names the first file that would give an
    indexed column another type."""
    merge = FORMATS[format_name].merge
    assert merge is not None
    by_schema: dict[bytes, int] = {}
    for ordinal, schema in sorted(found, key=lambda one: one[0]):
        by_schema.setdefault(schema.serialize().to_pybytes(), ordinal)
    schemas = [pa.ipc.read_schema(pa.py_buffer(text)) for text in by_schema]  # with the metadata for the merge
    known = [_known(spec)] if spec and spec.schema else []
    merged = merge([*known, *schemas])
    if spec is not None and _changed(spec, merged):
        for ordinal, schema in zip(by_schema.values(), schemas, strict=True):
            for changed in _changed(spec, merge([*known, schema])):
                raise UsageError(changed, files[ordinal].path)
    return to_ddl(merged)


def _known(spec: IndexSpec) -> pa.Schema:
    """The columns known before. An indexed column with only nulls is a string, and stays one."""
    known = {field.name: field for field in parse_ddl(spec.schema)}
    for one in (*spec.stored_keys, *spec.include):
        if one.column in known:
            known[one.column] = changed_at(known[one.column], one.place[1:], _settled)
    return pa.schema(known.values())


def _settled(field: pa.Field) -> pa.Field:
    """A field whose type no longer depends on later rows."""
    return field.remove_metadata() if field.metadata == {COMMENT: NOTHING} else field


def _changed(spec: IndexSpec, schema: pa.Schema) -> list[str]:
    """The error texts for indexed columns that have another type in a schema than in the index."""
    changed = []
    for one in (*spec.stored_keys, *spec.include):
        try:
            field = one.field_in(schema)
        except WrongPath as error:
            changed.append(str(error))
            continue
        if field is not None and type_of_arrow(field.type) != one.type:
            known = one.source_type or one.type
            changed.append(f"column {one.name} is {field.type}, elsewhere in the source it is {known}")
    return changed


def scan_file(
    storage: Readable, info: FileInfo, spec: IndexSpec, split: Split, on_ragged: Callable[[int], None]
) -> Iterator[list[pa.Array]]:
    """The batches of a range of a listed file, as `stored_columns` makes them. `on_ragged` is called at the end, with
    the number of ragged records. StalePointer where the file changed since the listing."""
    with listed(storage, info) as reader:
        source = open_source(reader, spec.format, spec.read_options)
        names = [column.name for column in (*spec.stored_keys, *spec.include)]
        there = [name for name in names if name in source.schema.names]
        yield from stored_columns(spec, source.scan(reader, there, split), reader.name)
        on_ragged(source.ragged)


def check_visible(storage: Storage, sizes: Mapping[str, int]) -> None:
    """Raise StorageError where tasks wrote files of these sizes to disks of other machines."""
    for path, size in sizes.items():
        try:
            with storage.open(path) as file:
                found = file.size
        except FileNotFoundError:
            found = -1
        if found != size:
            raise StorageError(
                f"a task wrote {size:,} bytes, and {'none' if found < 0 else found} are here; expected a disk that "
                "executors and this machine share: docs/operations/cluster.md; nothing was committed",
                f"{storage.root}/{path}",
            )


def exported_maps(source: Readable, spec: IndexSpec, file: SourceFileEntry) -> bytes:
    """The page maps of a file. StalePointer where the file changed since the listing."""
    with listed(source, file.info) as reader:
        found = open_mapped(reader, spec.format, spec.read_options)
        if found.digest != file.digest:
            what = "the file changed while its page maps were made"
            raise StalePointer(what, reader.name, action=Action.BUILD_AGAIN)
        return found.export_maps(reader, spec.page_maps == DEEP)
