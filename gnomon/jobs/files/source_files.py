"""Rows, columns and fingerprints of the source's files, read from their own metadata."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.shadow.commit import wider
from gnomon.shadow.errors import BuildFailed, FileChanged, SourceError, StalePointer, UnsupportedFormat
from gnomon.shadow.metadata import DigestChecks, IndexSpec, SourceFileEntry, SourceRoot
from gnomon.shadow.storage import FileInfo, OpenFile, Readable, difference, join
from gnomon.sources import FORMATS, Options, Split, detect, format_of_name, open_source
from gnomon.sources.types import parse_ddl

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
            scanned = source.scan_bytes(indexed)
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
    now = {info.path: info for info in root.list()}
    for entry in (one.entry for one in described):
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
