"""The write of a DataFrame to a key-value folder: B-Tree files of keys with their values, without a source."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gnomon.btree.key_types import is_key_type, key_type
from gnomon.indexer.build.scan import GROUP
from gnomon.indexer.build.sort_prefix import shared_beginning
from gnomon.indexer.build.write import write_values
from gnomon.indexer.keys import column
from gnomon.indexer.spark import as_raised
from gnomon.jobs.build import RESERVED
from gnomon.shadow.commit import Changes, new_segment_id, publish, publish_full
from gnomon.shadow.errors import UnknownColumn, UsageError
from gnomon.shadow.maintenance import check_no_other_files
from gnomon.shadow.metadata import (
    ENTRIES_PER_BUCKET,
    MOST_BUCKETS,
    VALUES,
    IndexFileEntry,
    IndexSpec,
    KeyColumn,
    Snapshot,
    SourceFileEntry,
    check_buckets,
    check_columns,
    check_names,
    check_same,
    create_first_spec,
    newest_snapshot,
    put_back,
)
from gnomon.shadow.storage import Place, Storage, probe, storage_at
from gnomon.shadow.tables import NULL_VALUE, exact_folders
from gnomon.shadow.verify import sampled

ERROR, APPEND = "error", "append"
MODES = (ERROR, "overwrite", APPEND)
BYTES_PER_BUCKET = 128 * 1024 * 1024  # of entries: a task holds its file in memory
BYTES_PER_NUMBER = 8
HASH, PART, PLACE, NUMBER = "__gnomon_hash", "__gnomon_part", "__gnomon_place", "__gnomon_number"
MOST_PARTITIONS = 10_000
FOLDER_TYPES = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")  # their text is the value


@dataclass(frozen=True)
class WriteResult:
    """The result of a write: rows, index files and their bytes; `total_rows` are all rows of the folder now."""

    snapshot: int
    rows: int
    total_rows: int
    index_files: int
    index_bytes: int
    buckets: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def write_btree(
    df: DataFrame,
    path: Place,
    keys: Sequence[str],
    buckets: int | None = None,
    mode: str = ERROR,
    partitions: Sequence[str] = (),
) -> WriteResult:
    """Write the rows of `df` to the folder `path`. `shadow.open_index(path).get(key)` and `gnomon get` then find all
    rows of a key (the columns `keys`), each with all columns.

    `partitions` are columns that become partition folders: a look-up may name them (`where`), and a key may contain
    some of them. Each partition has a number of buckets for its own size, which divides `buckets`, the largest.

    `mode` decides about a folder with rows: "error" refuses it, "overwrite" replaces all rows in one commit and may
    change the columns, "append" adds rows. `df` is evaluated once. UsageError for columns that an index file cannot
    hold, SpecMismatch for rows that cannot be added, ConcurrentCommit where another program committed first."""
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    if buckets is not None:
        check_buckets(buckets)
    spec = _spec(df.schema, keys, partitions)
    storage = storage_at(path)
    newest = newest_snapshot(storage)
    before = newest if newest is not None and mode == APPEND else None
    _check_there(storage, newest, spec, buckets, mode)
    probe(storage)
    if before is not None:
        put_back(storage, before.spec)
    named = _named(df, spec)
    is_cached = df.storageLevel.useMemory or df.storageLevel.useDisk
    if not is_cached:
        named.persist()
    try:
        with as_raised():
            found, beginning = _measured(named, spec)
            spec = _with_buckets(spec, found, before, buckets)
            segment = new_segment_id()
            written = _write(named, storage.root, spec, segment, found, beginning) if found else []
    finally:
        if not is_cached:
            named.unpersist()
    for _ in sampled(storage, spec, written):
        pass
    listed = [SourceFileEntry(f"{one.folder}/{segment}".lstrip("/"), one.folder, one.rows, 0, 0, "") for one in found]
    columns = {field.name: str(key_type(field.dataType.simpleString()).arrow) for field in df.schema}
    rows = sum(one.rows for one in found)
    changes = Changes("write", written, listed, {}, columns, counts={"rows_written": rows})
    if before is not None:
        snapshot = publish(storage, spec, before, changes, segment)
    else:
        if newest is None:
            create_first_spec(storage, spec)
        snapshot = publish_full(storage, spec, newest.number if newest else 0, changes, segment)
    return WriteResult(
        snapshot=snapshot.number,
        rows=rows,
        total_rows=snapshot.rows,
        index_files=len(written),
        index_bytes=sum(file.size for file in written),
        buckets=spec.buckets,
        seconds=round(time.perf_counter() - begin, 3),
    )


def _spec(schema: StructType, keys: Sequence[str], partitions: Sequence[str]) -> IndexSpec:
    """The spec for a schema, with one bucket. UsageError with the column where a schema has no spec."""
    kinds = {field.name: field.dataType.simpleString() for field in schema}
    check_names("keys", keys)
    check_names("partitions", partitions)
    if not [*keys]:
        raise UsageError(f"keys: expected a list of column names, found {keys!r}")
    if len(kinds) < len(schema):
        twice = next(name for name in kinds if schema.names.count(name) > 1)
        raise UsageError(f"column {twice}: there are several of this name; rename one")
    missing = [name for name in (*keys, *partitions) if name not in kinds]
    if missing:
        raise UnknownColumn(f"there is no column {', '.join(missing)}; there are {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not is_key_type(kind):
            raise UsageError(f"column {name} of type {kind} cannot be stored; {_cure(kind)}")
        if name.startswith(RESERVED):
            raise UsageError(f"column {name}: Spark or Gnomon uses this name; rename the column")
    for name in partitions:
        if kinds[name] not in FOLDER_TYPES and not kinds[name].startswith("decimal"):
            known = ", ".join(FOLDER_TYPES)
            raise UsageError(f"partitions: expected columns of type {known} or decimal, found {name} {kinds[name]}")
        if list(partitions).count(name) > 1:
            raise UsageError(f"partitions: {name} is named twice")
    columns = {name: KeyColumn(name, kind, partition=name in partitions) for name, kind in kinds.items()}
    values = tuple(column for name, column in columns.items() if name not in (*keys, *partitions))
    types = {name: kinds[name] for name in partitions}
    spec = IndexSpec("", False, VALUES, tuple(partitions), tuple(columns[name] for name in keys), values, 1)
    spec = replace(spec, partition_types=types)
    check_columns(spec)
    return spec


def _cure(kind: str) -> str:
    if kind.startswith(("array", "map", "struct", "variant")):
        return "write it as text, with to_json"
    return "cast it to the type that it has without a collation" if " collate " in kind else "cast it to another type"


def _check_there(storage: Storage, newest: Snapshot | None, spec: IndexSpec, buckets: int | None, mode: str) -> None:
    """Raise UsageError where the folder's content does not allow the mode."""
    if newest is None:  # only files of a first write that was killed may be there
        check_no_other_files(storage)
        return
    if not newest.spec.holds_values:
        raise UsageError("the index of a source lies there; write to another folder", storage.root)
    if mode == ERROR:
        raise UsageError(
            f"{newest.rows} rows were written there before; say mode='overwrite' to replace them, or "
            "mode='append' to add to them",
            storage.root,
        )
    if mode == APPEND:
        number, of_folders = buckets or newest.spec.buckets, newest.spec.folder_buckets
        check_same(newest.spec, replace(spec, buckets=number, folder_buckets=of_folders), storage.root)


def _named(df: DataFrame, spec: IndexSpec) -> DataFrame:
    """The stored columns under their names in the index files, the hash of the key, and the texts of the partition
    columns."""
    stored = [column(name).alias(spec.file_names[name]) for name in df.columns if name in spec.file_names]
    texts = [column(name).cast("string").alias(part) for name, part in zip(spec.partitions, _parts(spec), strict=True)]
    named = df.select(*stored, *texts)
    return named.select("*", F.hash(*[key.name for key in spec.entry_schema.keys]).alias(HASH))


def _parts(spec: IndexSpec) -> list[str]:
    """The names of the partition columns while the rows are written."""
    return [f"{PART}{i}" for i in range(len(spec.partitions))]


class _Partition(NamedTuple):
    """The rows of a partition: its folder and the texts of its columns, the number of rows, the approximate bytes of
    their entries."""

    folder: str
    texts: tuple[str | None, ...]
    rows: int
    size: int


def _measured(named: DataFrame, spec: IndexSpec) -> tuple[list[_Partition], str]:
    """The partitions that have rows, and the common prefix of texts of the first key column."""
    columns = spec.entry_schema.columns
    texts = [F.octet_length(column.name) for column in columns if column.type in ("string", "binary")]
    lengths = [F.coalesce(F.sum(length), F.lit(0)).alias(f"c{i}") for i, length in enumerate(texts)]
    key = columns[0]
    ends = [end(key.name if key.type == "string" else F.lit("")).alias(end.__name__) for end in (F.min, F.max)]
    by_part = named.groupBy(*_parts(spec)).agg(F.count(F.lit(1)).alias("rows"), *ends, *lengths)
    found, prefixes = [], []
    for row in by_part.limit(MOST_PARTITIONS + 1).collect():
        values, (rows, least, most, *sizes) = row[: len(spec.partitions)], row[len(spec.partitions) :]
        if rows:
            size = sum(sizes) + rows * BYTES_PER_NUMBER * (len(columns) - len(texts))
            found.append(_Partition(_folder(spec, values), tuple(values), rows, size))
            prefixes += [least or "", most or ""]
    if len(found) > MOST_PARTITIONS:
        raise UsageError(f"partitions: expected at most {MOST_PARTITIONS:,} of them, found more; name other columns")
    return sorted(found), shared_beginning([min(prefixes), max(prefixes)] if prefixes else [""])


def _folder(spec: IndexSpec, texts: Sequence[str | None]) -> str:
    if NULL_VALUE in texts:
        raise UsageError(f"partitions: the text {NULL_VALUE} is the name of the folder of nulls; write another one")
    if any("\0" in text for text in texts if text is not None):
        raise UsageError("partitions: a text has the character U+0000, which no folder name has; write another one")
    return exact_folders(dict(zip(spec.partitions, texts, strict=True)))


def _with_buckets(
    spec: IndexSpec, found: Sequence[_Partition], before: Snapshot | None, buckets: int | None
) -> IndexSpec:
    """The spec with the number of buckets of each folder. A folder that is there keeps its number."""
    wanted = {one.folder: _buckets(one.rows, one.size) for one in found}
    largest = max(wanted.values(), default=1)
    if not spec.partitions:
        return replace(spec, buckets=before.spec.buckets if before is not None else buckets or largest)
    fewest = min(1 << (largest - 1).bit_length(), MOST_BUCKETS)
    number = before.spec.buckets if before is not None else buckets or fewest
    divisors = [one for one in range(1, number + 1) if number % one == 0]
    fitting = {folder: next((one for one in divisors if one >= most), number) for folder, most in wanted.items()}
    there = {*before.partitions, *before.spec.folder_buckets} if before is not None else ()
    kept = {folder: before.spec.buckets_in(folder) for folder in there} if before is not None else {}
    return replace(spec, buckets=number, folder_buckets=fitting | kept)


def _write(
    named: DataFrame, root: str, spec: IndexSpec, segment: str, found: Sequence[_Partition], beginning: str
) -> list[IndexFileEntry]:
    """Write the index files of all partitions."""
    parts, folders = _parts(spec), [one.folder for one in found]
    if parts:
        places = [(*one.texts, i, spec.buckets_in(one.folder)) for i, one in enumerate(found)]
        names = [*(f"{part} string" for part in parts), f"{PLACE} int", f"{NUMBER} int"]
        table = named.sparkSession.createDataFrame(places, ", ".join(names))
        is_same = [named[part].eqNullSafe(table[part]) for part in parts]
        named = named.join(F.broadcast(table), is_same, "inner").drop(*[table[part] for part in parts])
        place, number = F.col(PLACE), F.col(NUMBER)
    else:
        place, number = F.lit(0), F.lit(spec.buckets)
    group = (place * spec.buckets + F.pmod(F.col(HASH), number)).alias(GROUP)
    entries = named.select(*[column.name for column in spec.entry_schema.columns], group)
    return write_values(entries, root, spec, segment, folders, sum(one.rows for one in found), beginning)


def _buckets(rows: int, size: int) -> int:
    return min(max(-(-rows // ENTRIES_PER_BUCKET), -(-size // BYTES_PER_BUCKET), 1), MOST_BUCKETS)
