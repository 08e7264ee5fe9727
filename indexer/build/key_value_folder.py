"""The write of a DataFrame to a key-value folder: B-Tree files of keys with their values, without a source."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gnomon.btree.key_types import is_key_type, key_type
from gnomon.indexer.build.scan import GROUP
from gnomon.indexer.build.sort_prefix import shared_beginning
from gnomon.indexer.build.write import write_values
from gnomon.indexer.spark import as_raised
from gnomon.jobs.build import RESERVED
from gnomon.shadow.commit import Changes, new_segment_id, publish, publish_full
from gnomon.shadow.errors import UnknownColumn, UsageError
from gnomon.shadow.maintenance import check_no_other_files
from gnomon.shadow.metadata import (
    ENTRIES_PER_BUCKET,
    MOST_BUCKETS,
    VALUES,
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
from gnomon.shadow.verify import sampled

ERROR, APPEND = "error", "append"
MODES = (ERROR, "overwrite", APPEND)
BYTES_PER_BUCKET = 128 * 1024 * 1024  # of entries: a task holds its file in memory
BYTES_PER_NUMBER = 8
HASH = "__gnomon_hash"


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
    df: DataFrame, path: Place, keys: Sequence[str], buckets: int | None = None, mode: str = ERROR
) -> WriteResult:
    """Write the rows of `df` to the folder `path`. `shadow.open_index(path).get(key)` and `gnomon get` then find all
    rows of a key (the columns `keys`), each with all columns.

    `mode` decides about a folder with rows: "error" refuses it, "overwrite" replaces all rows in one commit and may
    change the columns, "append" adds rows. `df` is evaluated once. UsageError for columns that an index file cannot
    hold, SpecMismatch for rows that cannot be added, ConcurrentCommit where another program committed first."""
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    if buckets is not None:
        check_buckets(buckets)
    spec = _spec(df.schema, keys)
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
            rows, size, beginning = _measured(named, spec)
            number = before.spec.buckets if before is not None else buckets or _buckets(rows, size)
            spec = replace(spec, buckets=number)
            segment = new_segment_id()
            group = F.pmod(F.col(HASH), F.lit(number)).alias(GROUP)
            entries = named.select(*[column.name for column in spec.entry_schema.columns], group)
            written = write_values(entries, storage.root, spec, segment, rows, beginning) if rows else []
    finally:
        if not is_cached:
            named.unpersist()
    for _ in sampled(storage, spec, written):
        pass
    listed = [SourceFileEntry(segment, "", rows, 0, 0, "")] if rows else []
    columns = {field.name: str(key_type(field.dataType.simpleString()).arrow) for field in df.schema}
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
        buckets=number,
        seconds=round(time.perf_counter() - begin, 3),
    )


def _spec(schema: StructType, keys: Sequence[str]) -> IndexSpec:
    """The spec for a schema, with one bucket. UsageError with the column where a schema has no spec."""
    kinds = {field.name: field.dataType.simpleString() for field in schema}
    check_names("keys", keys)
    if not keys:
        raise UsageError(f"keys: expected a list of column names, found {keys!r}")
    if len(kinds) < len(schema):
        twice = next(name for name in kinds if schema.names.count(name) > 1)
        raise UsageError(f"column {twice}: there are several of this name; rename one")
    missing = [name for name in keys if name not in kinds]
    if missing:
        raise UnknownColumn(f"there is no column {', '.join(missing)}; there are {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not is_key_type(kind):
            raise UsageError(f"column {name} of type {kind} cannot be stored; {_cure(kind)}")
        if name.startswith(RESERVED):
            raise UsageError(f"column {name}: Spark or Gnomon uses this name; rename the column")
    columns = {name: KeyColumn(name, kind) for name, kind in kinds.items()}
    values = tuple(column for name, column in columns.items() if name not in keys)
    spec = IndexSpec("", False, VALUES, (), tuple(columns[name] for name in keys), values, 1)
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
        check_same(newest.spec, replace(spec, buckets=buckets or newest.spec.buckets), storage.root)


def _named(df: DataFrame, spec: IndexSpec) -> DataFrame:
    """The columns under their names in the index files, and the hash of the key."""
    named = df.toDF(*[spec.file_names[name] for name in df.columns])
    return named.select("*", F.hash(*[column.name for column in spec.entry_schema.keys]).alias(HASH))


def _measured(named: DataFrame, spec: IndexSpec) -> tuple[int, int, str]:
    """The number of rows, the approximate bytes of their entries, and the common prefix of texts of the first key
    column."""
    columns = spec.entry_schema.columns
    texts = [F.octet_length(column.name) for column in columns if column.type in ("string", "binary")]
    lengths = [F.coalesce(F.sum(length), F.lit(0)).alias(f"c{i}") for i, length in enumerate(texts)]
    key = columns[0]
    ends = [end(key.name if key.type == "string" else F.lit("")).alias(end.__name__) for end in (F.min, F.max)]
    rows, least, most, *sizes = named.agg(F.count(F.lit(1)).alias("rows"), *ends, *lengths).first() or (0, "", "")
    size = sum(sizes) + rows * BYTES_PER_NUMBER * (len(columns) - len(texts))
    return rows, size, shared_beginning([least or "", most or ""])


def _buckets(rows: int, size: int) -> int:
    return min(max(-(-rows // ENTRIES_PER_BUCKET), -(-size // BYTES_PER_BUCKET), 1), MOST_BUCKETS)
