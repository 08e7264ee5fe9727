"""Keys in DataFrames: casts to the types of the spec, and the shuffle to the tasks of their buckets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructType

from gnomon.base.hashes_python import SEED
from gnomon.btree.hashing import hash_int
from gnomon.indexer.spark.tasks import cores_of
from gnomon.indexer.spark.types import arrow_of, key_spark_type
from gnomon.indexer.spark.versions import ReadColumn, with_column_in_arrow, with_read_columns
from gnomon.jobs.load import NoType, check_given
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn
from gnomon.shadow.values import KEY_PREFIX, key_names, typed_key

BUCKET = "__gnomon_bucket"
GIVEN_PREFIX = f"{KEY_PREFIX}of_struct_"


def quoted(name: str) -> str:
    """A column name with any characters, quoted for Spark's expressions."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    return F.col(quoted(name))


def at_path(path: Sequence[str]) -> Column:
    """A column, or a field of a struct, by the names down to it."""
    return F.col(".".join(map(quoted, path)))


def with_keys(
    frame: DataFrame, spec: IndexSpec, what: str, every_key_counts: bool = False, all_of_it: bool = True
) -> DataFrame:
    """The frame with a second copy of its key, in the types of the index, in the columns `key_names`: int 5 and bigint
    5 hash differently. Tasks read text and compare other types as a load in this process does
    (`gnomon.jobs.load.typed_key`), whatever the session's time zone.

    A number that the index's type cannot hold exactly has no row: its key becomes null, which matches nothing. With
    `every_key_counts` it fails the job, as invalid text always does. UsageError for a type that cannot be compared.
    Without `all_of_it` columns of the key may be missing."""
    places = {key: _place(key, frame.schema, what) for key in spec.keys}
    missing = [key.name for key, place in places.items() if place is None]
    if missing and all_of_it:
        raise UsageError(f"{what}: the key column {', '.join(missing)} is missing; it has {', '.join(frame.columns)}")
    check_given(
        [name for name in frame.columns if any(place and name == place.path[0] for place in places.values())], what
    )
    there = [(key, name, place) for (key, place), name in zip(places.items(), key_names(spec), strict=True) if place]
    alike = [(name, place) for key, name, place in there if place.kind.simpleString() == key.type]
    others = [(key, name, place) for key, name, place in there if (name, place) not in alike]
    # A field of a struct is read from a column of its own, for the time of this call.
    fields = {name: f"{GIVEN_PREFIX}{name}" for _, name, place in others if len(place.path) > 1}
    read = [
        _read_key(key, name, fields.get(name, key.name), place.kind, what, every_key_counts)
        for key, name, place in others
    ]
    chosen = [at_path(place.path).alias(name) for name, place in alike]
    chosen += [at_path(place.path).alias(fields[name]) for _, name, place in others if name in fields]
    return with_read_columns(frame.select("*", *chosen), read).drop(*fields.values())


class _Place(NamedTuple):
    """Where a DataFrame has a key: the names down to it, and its type."""

    path: Sequence[str]
    kind: DataType


def _place(key: KeyColumn, schema: StructType, what: str) -> _Place | None:
    """The place of a key in rows of a schema: a column of its name, else the field of its path; None for neither."""
    for path in ((key.name,), key.path):
        kind: DataType | None = schema
        for name in path:
            if not isinstance(kind, StructType):
                raise UsageError(f"{what}: column {key.column} is no struct with the key {key.name}")
            kind = next((field.dataType for field in kind if field.name == name), None)
            if kind is None:
                break
        if path and kind is not None:
            return _Place(path, kind)
    return None


def _read_key(key: KeyColumn, name: str, given: str, kind: DataType, what: str, all_held: bool) -> ReadColumn:
    """A key column of a DataFrame, read in the type of the index. UsageError where its type cannot be compared."""
    try:
        none = pa.array([], arrow_of(kind))
    except NoType:
        none = pa.array([], pa.list_(pa.null()))  # a type that no key is compared with
    typed_key(none, key, what, shown=kind.simpleString())  # refuses a type before any row is read
    return ReadColumn(name, key_spark_type(key.type), given, lambda array: typed_key(array, key, what, all_held))


def to_buckets(frame: DataFrame, spec: IndexSpec) -> DataFrame:
    """Shuffle by key so that each task holds keys of one bucket only.

    Spark sends a row to partition pmod(hash(key), n). If n is a multiple of the buckets, partition p holds keys of
    hashed bucket p mod buckets. Of buckets that are ranges, each has as many tasks, to which its keys are hashed."""
    cores = cores_of(frame.sparkSession)
    of_a_bucket = -(-cores // spec.buckets)
    stored = [name for key, name in zip(spec.keys, key_names(spec), strict=True) if not key.partition]
    if spec.cuts is None:
        return frame.repartition(spec.buckets * of_a_bucket, *stored)
    bucketing = spec.bucketing

    def buckets(batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
        return (pa.array(bucketing.of_columns(columns).astype(np.int32)) for columns in batches)

    placed = with_column_in_arrow(frame, BUCKET, IntegerType(), stored, buckets, is_deterministic=True)
    task = F.col(BUCKET) * of_a_bucket + F.pmod(F.hash(*stored), F.lit(of_a_bucket))
    return placed.repartition(spec.buckets * of_a_bucket, route(task, spec.buckets * of_a_bucket)).drop(BUCKET)


def route(number: Column, tasks: int) -> Column:
    """A column whose hash sends number n to task n mod `tasks`. Spark routes a row by the hash of a value, so this
    function searches a value for each task. Neighbouring buckets of a large partition go to different tasks."""
    values: dict[int, int] = {}
    candidate = 0
    while len(values) < tasks:
        signed = hash_int(candidate, SEED)
        values.setdefault((signed - (1 << 32) if signed >> 31 else signed) % tasks, candidate)
        candidate += 1
    routes = F.array(*[F.lit(values[task]) for task in range(tasks)])
    return F.get(routes, F.pmod(number, F.lit(tasks)))
