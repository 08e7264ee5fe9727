"""Load: the rows of many keys. It is a join that shuffles the sample, but neither the index nor the payload.

The sample goes to the index's buckets, and each task looks its keys up in its own index files (`join`). The pointers go
to their source files, and each task reads its rows in file order (`fetch`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from gnomon.indexer.join.fetch import ERROR, FetchCounters, fetched
from gnomon.indexer.join.key_join import OURS, POINTER_FIELDS, JoinOptions, LookupCounters, located, lookup_counters
from gnomon.indexer.keys import KEY_PREFIX, column, with_keys
from gnomon.indexer.tables import source_types
from gnomon.shadow import Index, UsageError, open_index
from gnomon.shadow.metadata import check_names
from gnomon.shadow.storage import Place
from gnomon.sources import POINTER_COLUMNS

UNREADABLE = ("fail", "report")
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
AS_GIVEN = tuple(zip(POINTER_COLUMNS, POINTER_FIELDS, strict=True))


@dataclass
class LoadCounters(LookupCounters, FetchCounters):
    """Sums over the tasks of a load, complete once its result was computed; a retried task counts twice."""


def load_counters(spark: SparkSession) -> LoadCounters:
    sums = [spark.sparkContext.accumulator(0) for _ in range(5)]
    return LoadCounters(*sums, **vars(lookup_counters(spark)))


def load(
    spark: SparkSession,
    index: Place,
    keys: DataFrame | pd.DataFrame | pa.Table,
    columns: Sequence[str] | None = None,
    how: str = "inner",
    counters: LoadCounters | None = None,
    null_safe: bool = False,
    unreadable: str = "fail",
) -> DataFrame:
    """The rows of the source whose key is in `keys` (a DataFrame of Spark or pandas, or an Arrow table): all columns of
    `keys`, then the requested columns of the source (by default all that `keys` lacks).

    Each row of `keys` gives one row for each source row with its key; with how="left", a row of nulls where there is
    none. As in SQL, a key with a null matches nothing; with `null_safe` nulls match nulls. Lazy.

    A row that cannot be read (its file changed or is gone, its page is damaged) fails the job with its error. With
    unreadable="report" it has nulls in the source's columns, and the error, with path and pointer, in a last column
    `data_error`, which is null in all other rows."""
    opened = open_index(index)
    if not isinstance(keys, DataFrame):
        keys = spark.createDataFrame(keys)
    payload = _payload_columns(opened, keys, columns)
    _check_unreadable(unreadable, [*keys.columns, *payload])
    counters = counters or load_counters(spark)
    sample = with_keys(keys, opened.spec, "keys")
    found = located(spark, opened, sample, JoinOptions(how, null_safe), counters)
    report = unreadable == "report"
    types = source_types(spark, opened, payload)
    return fetched(opened, found, keys.columns, types, report, counters)


def load_by_index(
    spark: SparkSession,
    index: Place,
    pointers: DataFrame,
    columns: Sequence[str] | None = None,
    unreadable: str = "fail",
    counters: LoadCounters | None = None,
) -> DataFrame:
    """The rows of the source for pointers. `pointers` has the columns data_filename, data_offset, data_sub_offset and
    data_size of `join_with_index`; it may have been filtered and joined since.

    All columns of `pointers` are kept, except the four, which `columns` may name; then come the requested columns of
    the source that `pointers` lacks (by default all). Key columns that `pointers` has are compared with the keys of the
    rows: StalePointer where one differs. Keep them: if the file was replaced and indexed again since, a pointer alone
    would lead to another row. A row whose data_filename is null stays, with nulls. `unreadable`: as in `load`; a
    pointer into a file that the newest snapshot does not cover counts as unreadable. Lazy."""
    check_names("columns", columns)
    opened = open_index(index)
    _check_pointers(pointers)
    kept = [name for name in pointers.columns if name not in POINTER_COLUMNS or name in (columns or ())]
    known = opened.view.columns
    unknown = [name for name in columns or () if name not in known and name not in pointers.columns]
    if unknown:
        there = f"the source has {', '.join(known)}"
        raise UsageError(f"neither the source nor pointers have a column {', '.join(unknown)}; {there}")
    payload = [name for name in dict.fromkeys(known if columns is None else columns) if name not in pointers.columns]
    if not kept and not payload:
        raise UsageError("columns: none are left to load; name some")
    _check_unreadable(unreadable, [*kept, *payload])
    counters = counters or load_counters(spark)
    keyed = with_keys(pointers, opened.spec, "pointers", all_of_it=False)
    asked = [column(name).cast(field.dataType).alias(field.name) for name, field in AS_GIVEN]
    keys = [column(name) for name in keyed.columns if name.startswith(KEY_PREFIX)]
    found = keyed.select(*map(column, kept), *keys, *asked)
    report = unreadable == "report"
    types = source_types(spark, opened, payload)
    return fetched(opened, found, kept, types, report, counters)


def _check_pointers(pointers: DataFrame) -> None:
    _check_names(pointers, "pointers")
    kinds = {field.name: field.dataType for field in pointers.schema}
    missing = [name for name in POINTER_COLUMNS if name not in kinds]
    if missing:
        raise UsageError(f"pointers: the column {', '.join(missing)} is missing; it has {', '.join(kinds)}")
    for name, field in AS_GIVEN:
        fits = StringType if isinstance(field.dataType, StringType) else INTEGERS
        if not isinstance(kinds[name], fits):
            expected, found = field.dataType.simpleString(), kinds[name].simpleString()
            raise UsageError(f"pointers: column {name}: expected {expected}, found {found}")


def _check_names(frame: DataFrame, what: str) -> None:
    twice = [name for name in frame.columns if frame.columns.count(name) > 1]
    if twice:
        raise UsageError(f"{what}: it has more than one column {twice[0]}; rename one")
    ours = [name for name in frame.columns if name.startswith(OURS)]
    if ours:
        raise UsageError(f"{what}: names that begin with {OURS} are taken; rename {', '.join(ours)}")


def _check_unreadable(unreadable: str, names: Sequence[str]) -> None:
    if unreadable not in UNREADABLE:
        raise UsageError(f"unreadable: expected {' or '.join(UNREADABLE)}, found {unreadable!r}")
    if unreadable == "report" and ERROR in names:
        raise UsageError(f"there is a column {ERROR} already; rename it, or do not ask for it")


def _payload_columns(index: Index, sample: DataFrame, columns: Sequence[str] | None) -> list[str]:
    """The source's columns to read. Only key columns may be in `keys`, too: other columns would be ambiguous."""
    check_names("columns", columns)
    known, keys = index.view.columns, {key.name for key in index.spec.keys}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UsageError(f"the source has no column {', '.join(unknown)}; it has {', '.join(known)}")
    wanted = [name for name in dict.fromkeys(known if columns is None else columns) if name not in keys]
    both = [name for name in wanted if name in sample.columns]
    if both:
        raise UsageError(f"keys: the source has a column {', '.join(both)}, too; rename it, or do not ask for it")
    return wanted
