"""An index as a Polars LazyFrame of the rows of its source: conditions on the key become look-ups and ranges of keys.
DuckDB reads the frame, too, and gives it its conditions as expressions of Polars.

Polars gives the source one expression. It is taken apart by `Expr.meta`, and each part is compared with the expressions
that are known: the whole expression is applied to what is read, so that an unknown part only prunes nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gnomon.btree.errors import KeyTypeError
from gnomon.btree.key_types import Stored
from gnomon.shadow.errors import UsageError
from gnomon.shadow.index import Index, open_index
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import (
    AT_LEAST,
    AT_MOST,
    BEGINS,
    KEY,
    LESS,
    MORE,
    PARTITION,
    EntryColumn,
    Interval,
    NotExact,
    Selection,
    Values,
    entry_columns,
    exact,
    interval,
    selected,
)
from gnomon.shadow.selected_rows import selected_rows
from gnomon.shadow.storage import Place

if TYPE_CHECKING:
    import polars as pl

Comparison = Callable[[Any, Any], Any]
COMPARISONS: Mapping[str, Comparison] = {
    LESS: lambda column, value: column < value,
    AT_MOST: lambda column, value: column <= value,
    MORE: lambda column, value: column > value,
    AT_LEAST: lambda column, value: column >= value,
    BEGINS: lambda column, value: column.str.starts_with(value),
}
Closed = Literal["both", "left", "right", "none"]
BETWEEN: Mapping[Closed, tuple[str, str]] = {
    "both": (AT_LEAST, AT_MOST),
    "left": (AT_LEAST, LESS),
    "right": (MORE, AT_MOST),
    "none": (MORE, LESS),
}
Found = list[tuple[EntryColumn, Values | Interval]]


def scan_polars(index: Index | Place, snapshot: int | None = None, *, full_scan: bool = True) -> "pl.LazyFrame":
    """The rows of an index's source, or of a key-value folder, as a LazyFrame; `pip install 'gnomon-index[polars]'`.
    DuckDB queries it by the name of its variable: `duckdb.sql("SELECT n FROM frame WHERE url = '...'")`.

    `=`, `is_in`, `<`, `<=`, `>`, `>=`, `is_between`, `str.starts_with` and `is_null` on the key read its rows alone, as
    do values that `|` joins: of several key columns those that have values first, and one comparison behind them. The
    same on partition columns leaves partitions out. Other queries read all rows; without `full_scan` they are a
    UsageError if they have no limit. Only the needed columns are read; where the index has all of them, the source is
    not read. Rows come in no order: sort them.

    A path is opened at its newest snapshot, or at `snapshot`; an open index answers as it does when the frame is
    collected. UsageError where a file has values of a column that the type of the newest files does not hold; other
    errors as in `open_index` and in a fetch."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise UsageError("scan_polars needs Polars; pip install 'gnomon-index[polars]'") from None
    opened = OpenIndex.of(index if isinstance(index, Index) else open_index(index, snapshot))
    if not isinstance(index, Index) and snapshot is None:
        opened = OpenIndex.of(open_index(index, opened.view.snapshot.number))
    whole = opened.table_many([])
    schema = pa.schema(list(whole.schema)[1:])  # without the number of the key
    columns = entry_columns(opened.spec)

    def read(
        with_columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, batch_size: int | None
    ) -> Iterator["pl.DataFrame"]:
        names = schema.names if with_columns is None else with_columns
        asked = [] if predicate is None else predicate.meta.root_names()
        needed = list(dict.fromkeys([*names, *asked]))
        left = n_rows  # of all rows: Polars filters the first ones
        selection = selection_of(predicate if left is None else None, columns)
        if left is None and not full_scan and selection == Selection():
            what = f"the query has no condition that is a look-up, and would read all {len(opened):,} rows"
            raise UsageError(
                what, opened.location, expected="=, IN (of up to 10,000 values), a range or full_scan=True"
            )
        for table in selected_rows(opened, selection, needed):
            some = table if left is None else table.slice(0, left)
            frame = pl.from_arrow(_as(some, pa.schema([schema.field(name) for name in needed]), opened.location))
            assert isinstance(frame, pl.DataFrame)
            yield (frame if predicate is None else frame.filter(predicate)).select(names)
            left = None if left is None else left - len(some)
            if left == 0:
                return

    of_none = pl.from_arrow(schema.empty_table())
    assert isinstance(of_none, pl.DataFrame)
    what = f"index {opened.location}, key {', '.join(key.name for key in opened.spec.keys)}"
    return register_io_source(read, schema=dict(of_none.schema), explain_name="gnomon", explain_detail=what)


def _as(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    try:
        return table.cast(schema)
    except pa.ArrowInvalid as error:
        what = f"a file has a value that the type of the newest files does not hold ({error})"
        raise UsageError(what, where) from None


def selection_of(predicate: "pl.Expr | None", columns: Sequence[EntryColumn]) -> Selection:
    """The keys, ranges and partitions that a predicate selects, or more. `columns` are the columns of the index."""
    known = {column.source: column for column in columns if column.part in (KEY, PARTITION)}
    parts = [] if predicate is None else _parts(predicate, and_)
    return selected([one for part in parts for one in _conditions(part, known)], columns)[0]


def _parts(predicate: "pl.Expr", joined_by: Comparison) -> Iterator["pl.Expr"]:
    """The parts of a conjunction, or of a disjunction."""
    waiting = [predicate]
    while waiting:
        one = waiting.pop()
        inputs = one.meta.pop()
        if len(inputs) == 2 and one.meta.eq(joined_by(inputs[1], inputs[0])):
            waiting += inputs
        else:
            yield one


def _conditions(part: "pl.Expr", known: Mapping[str, EntryColumn]) -> Found:
    """The conditions of a part of a conjunction; none where it is unknown. Of a disjunction they are the values of one
    column that its parts accept."""
    found = [_condition(_not_null(one), known) for one in _parts(part, or_)]
    if len(found) == 1:
        return found[0]
    values: Values = {}
    for one in found:
        if len(one) != 1 or one[0][0] != found[0][0][0] or isinstance(one[0][1], Interval):
            return []
        values |= one[0][1]
    return [(found[0][0][0], values)]


def _not_null(part: "pl.Expr") -> "pl.Expr":
    """The condition that holds for each row of a part in DuckDB's form of IN: null for some rows, else a condition."""
    import polars as pl

    inputs = part.meta.pop()
    if len(inputs) != 3:
        return part
    is_null, condition, null = inputs
    is_it = null.meta.is_literal() and part.meta.eq(pl.when(is_null).then(null).otherwise(condition))
    return condition if is_it and pl.select(null).to_series().to_list() == [None] else part


def _condition(part: "pl.Expr", known: Mapping[str, EntryColumn]) -> Found:
    """The conditions of a part on one column; none where it is unknown."""
    import polars as pl

    names = part.meta.root_names()
    column = known.get(names[0]) if len(names) == 1 else None
    *values, of_column = part.meta.pop() or [part]  # the last input comes first
    if column is None or not of_column.meta.eq(pl.col(names[0])) or not all(one.meta.is_literal() for one in values):
        return []
    try:
        if not values:
            return [(column, _values([None]))] if part.meta.eq(of_column.is_null()) else []
        given = [_exact(value, column) for value in reversed(values)]
        if len(values) == 1:
            return _with_one(part, of_column, values[0], given[0], column)
        low, high = values[1], values[0]
        for closed, operators in BETWEEN.items():
            is_it = part.meta.eq(of_column.is_between(low, high, closed=closed))
            if is_it and column.part == KEY and all(len(one) == 1 and None not in one for one in given):
                ends = zip(operators, (next(iter(one)) for one in given), strict=True)
                return [(column, interval(column.type, operator, value)) for operator, value in ends]
    except (KeyTypeError, NotExact):
        pass
    return []


def _with_one(part: "pl.Expr", of_column: "pl.Expr", literal: "pl.Expr", given: Values, column: EntryColumn) -> Found:
    """The condition of a part that has one literal."""
    there = _values(value for value in given if value is not None)  # nothing equals null
    if part.meta.eq(of_column == literal) or part.meta.eq(of_column.is_in(literal)):
        return [(column, there)]
    for operator, made in COMPARISONS.items():
        is_text = column.type == "string" or operator != BEGINS
        if is_text and column.part == KEY and len(there) == 1 and part.meta.eq(made(of_column, literal)):
            return [(column, interval(column.type, operator, next(iter(there))))]
    return []


def _exact(literal: "pl.Expr", column: EntryColumn) -> Values:
    """The values of a literal, or of a list of values, in stored form."""
    import polars as pl

    series = pl.select(literal).to_series()
    if isinstance(series.dtype, pl.List):
        series = series.explode()
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_unit == "ns":
        raise NotExact  # Python's datetime has no nanoseconds
    values = series.to_list()
    if column.type in ("float", "double"):  # Polars compares whole numbers as floats, too
        values = [float(one) if type(one) is int and float(one) == one else one for one in values]
    return _values(exact(value, column) for value in values)


def _values(values: Iterable[Stored]) -> Values:
    return dict.fromkeys(values)
