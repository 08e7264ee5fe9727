"""Answers as Arrow tables: the rows of all keys, one key after the other.

The first column, `key_number`, is the place of the row's key among the requested keys, from 0. Its name gets a number
if the source has a column `key_number`. The other columns are the requested ones. Partition columns have their own
types. Every other column has its type in the files of the table's rows; where these files differ, a type that holds the
values of all of them. Other files matter only for a column that no file of the rows has: its type comes from the newest
file that has it. The metadata hold the snapshot, and the number of matches of each key.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from gnomon.btree.key_types import key_type
from gnomon.btree.keys import stored_array
from gnomon.shadow.errors import UsageError
from gnomon.shadow.fetch.fetcher import Fetcher
from gnomon.shadow.fetch.results import Found, Rows, Share
from gnomon.shadow.storage import check_deadline
from gnomon.sources.types import common_moments

KEY_NUMBER = "key_number"
Schemas = Callable[[Sequence[str]], Iterable[pa.Schema]]
SNAPSHOT, COUNTS = b"gnomon.snapshot", b"gnomon.counts"  # metadata: a number; a JSON list of numbers


def answer_table(
    found: Found, fetcher: Fetcher | None, columns: Sequence[str], rows: Rows, schemas: Schemas
) -> pa.Table:
    """The rows of all keys. `schemas(columns)` yields schemas of source files, newest first, until they have each
    column that any file has. UsageError where no type holds all values of a column."""
    begin = time.perf_counter_ns()
    if fetcher is None:
        keys, table = _of_values(found, columns, rows)
    else:
        keys, table = _of_rows(fetcher, columns, rows, schemas)
    counts = json.dumps([hits.matches for hits in found.hits])
    metadata = {SNAPSHOT: str(found.view.snapshot.number), COUNTS: counts}
    arrays = [pa.array(keys, pa.int64()), *table.columns]
    rows.stats.add_fetch(begin)
    return pa.Table.from_arrays(arrays, names=[number_column(columns), *columns], metadata=metadata)


def number_column(columns: Sequence[str]) -> str:
    """The name of the first column, beside these."""
    name, number = KEY_NUMBER, 0
    while name in columns:
        name, number = f"{KEY_NUMBER}_{number + 1}", number + 1
    return name


def _of_rows(fetcher: Fetcher, columns: Sequence[str], rows: Rows, schemas: Schemas) -> tuple[np.ndarray, pa.Table]:
    keys, tables = [np.empty(0, np.int64)], []
    for share in rows.shares(fetcher):
        keys.append(np.repeat(np.array(share.keys, np.int64), share.counts))
        tables.append(_of_share(fetcher, columns, share))
    typed = {field.name for table in tables for field in table.schema if not pa.types.is_null(field.type)}
    missing = [name for name in columns if name not in typed]
    known = fetcher.schema(missing, schemas(missing))
    return np.concatenate(keys), _together([*tables, known.empty_table()]).select(list(columns))


def _of_share(fetcher: Fetcher, columns: Sequence[str], share: Share) -> pa.Table:
    """The rows in the order of the keys."""
    tables = []
    for part in share.parts:
        check_deadline("rows to be put in order")
        tables.append(fetcher.complete(part.table, part.file.partition, columns))
    table = _together(tables)
    places = np.concatenate([np.empty(0, np.int64), *(np.asarray(part.places, np.int64) for part in share.parts)])
    if (np.diff(places) > 0).all():
        return table
    turn = np.empty(len(places), np.int64)
    turn[places] = np.arange(len(places))
    return table.take(pa.array(turn))


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return pa.table({})
    try:
        together = pa.concat_tables(_with_common_moments(tables), promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        names = dict.fromkeys(name for table in tables for name in table.column_names)
        raise _no_common_type(tables, next(name for name in names if not _fits_together(tables, name))) from None
    for field in together.schema:
        if any(_rounds(kind, field.type) for kind in _types_of(tables, field.name)):
            raise _no_common_type(tables, field.name)  # Arrow would round decimals to floating numbers
    return together


def _with_common_moments(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with timestamps in their common types. ArrowInvalid where one does not hold a value."""
    kinds = {
        name: _types_of(tables, name) for name in dict.fromkeys(name for one in tables for name in one.column_names)
    }
    cast = []
    for table in tables:
        for place, field in enumerate(table.schema):
            wanted = reduce(common_moments, kinds[field.name], field.type)
            if wanted != field.type:
                table = table.set_column(place, field.with_type(wanted), table.column(place).cast(wanted))
        cast.append(table)
    return cast


def _rounds(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether a conversion to `target` makes a decimal, maybe nested, a floating number."""
    if pa.types.is_decimal(kind):
        return bool(pa.types.is_floating(target))
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        names = {field.name for field in kind} & {field.name for field in target}
        return any(_rounds(kind.field(name).type, target.field(name).type) for name in names)
    if pa.types.is_map(kind) and pa.types.is_map(target):
        return _rounds(kind.key_type, target.key_type) or _rounds(kind.item_type, target.item_type)
    is_list = pa.types.is_nested(kind) and pa.types.is_nested(target)
    is_list = is_list and hasattr(kind, "value_type") and hasattr(target, "value_type")
    return is_list and _rounds(kind.value_type, target.value_type)


def _types_of(tables: Sequence[pa.Table], name: str) -> list[pa.DataType]:
    return list(dict.fromkeys(table.schema.field(name).type for table in tables if name in table.column_names))


def _fits_together(tables: Sequence[pa.Table], name: str) -> bool:
    columns = [table.select([name]) for table in tables if name in table.column_names]
    try:
        pa.concat_tables(_with_common_moments(columns), promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return False
    return True


def _no_common_type(tables: Sequence[pa.Table], name: str) -> UsageError:
    kinds = ", ".join(map(str, _types_of(tables, name)))
    return UsageError(
        f"column {name} has the types {kinds} in the source files of these rows, and no Arrow type holds all of its "
        "values; ask for other columns or fewer keys, or for JSON"
    )


def _of_values(found: Found, columns: Sequence[str], rows: Rows) -> tuple[np.ndarray, pa.Table]:
    """The rows of a key-value folder, from its entries."""
    spec, kept = found.view.spec, rows.within_bytes()
    hits = [(key, hit) for key in kept for hit in rows.hits(key)]
    places = {column.name: (i, column.type) for i, column in enumerate(spec.include)}
    of_key = {column.name: (i, column.type) for i, column in enumerate(spec.stored_keys)}
    arrays = []
    for name in columns:
        if name in places:
            i, kind = places[name]
            values = [hit.included[i] for _, hit in hits]
        else:
            i, kind = of_key[name]
            values = [found.wanted[key].stored[i] for key, _ in hits]
        arrays.append(stored_array(values, kind) if values else pa.array([], key_type(kind).arrow))
    keys = np.array([key for key, _ in hits], np.int64)
    return keys, pa.Table.from_arrays(arrays, names=list(columns))
