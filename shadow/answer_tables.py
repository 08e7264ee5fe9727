"""Answers as Arrow tables: the rows of all keys, one key after the other.

The first column, `key_number`, is the place of the row's key among those asked for (from 0; with a number behind its
name where the source has a column of that name). The others are the columns asked for, partition columns in their
types, all others in the types of the source's files: where these differ, in one that holds all of their values. A table
without rows has the same columns. Its metadata say the snapshot, and how many matches each key has.
"""

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from btree.keys import arrow_type
from btree.stored_arrays import stored_array
from shadow.answers import Found, Rows, Share
from shadow.errors import UsageError
from shadow.fetch import Fetcher
from shadow.storage import deadlines

KEY_NUMBER = "key_number"
SNAPSHOT, COUNTS = b"gnomon.snapshot", b"gnomon.counts"  # metadata: a number; a JSON list of numbers


def answer_table(
    found: Found, fetcher: Fetcher | None, columns: Sequence[str], rows: Rows, schemas: Iterable[pa.Schema]
) -> pa.Table:
    """The rows of all keys. `schemas` are of source files that together have all columns that any has. UsageError where
    a column has types that no type holds all values of."""
    if fetcher is None:
        keys, table = _of_values(found, columns, rows)
    else:
        keys, table = _of_rows(fetcher, columns, rows, schemas)
    name, number = KEY_NUMBER, 0
    while name in columns:
        name, number = f"{KEY_NUMBER}_{number + 1}", number + 1
    counts = json.dumps([hits.matches for hits in found.hits])
    metadata = {SNAPSHOT: str(found.view.snapshot.number), COUNTS: counts}
    arrays = [pa.array(keys, pa.int64()), *table.columns]
    return pa.Table.from_arrays(arrays, names=[name, *columns], metadata=metadata)


def _of_rows(
    fetcher: Fetcher, columns: Sequence[str], rows: Rows, schemas: Iterable[pa.Schema]
) -> tuple[np.ndarray, pa.Table]:
    known = fetcher.schema(columns, schemas)
    keys, tables = [np.empty(0, np.int64)], [known.empty_table()]
    for share in rows.shares(fetcher):
        keys.append(np.repeat(np.array(share.keys, np.int64), share.counts))
        tables.append(_of_share(fetcher, columns, share))
    return np.concatenate(keys), _together(tables)


def _of_share(fetcher: Fetcher, columns: Sequence[str], share: Share) -> pa.Table:
    """The rows in the order of the keys."""
    tables = []
    for part in share.parts:
        deadlines.check("rows to be put in order")
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
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UsageError(
            f"a column has types that Arrow has no common one for, in different source files ({error}); ask for other "
            "columns, or for JSON"
        ) from None


def _of_values(found: Found, columns: Sequence[str], rows: Rows) -> tuple[np.ndarray, pa.Table]:
    """The same of a folder of values, from its entries."""
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
        arrays.append(stored_array(values, kind) if values else pa.array([], arrow_type(kind)))
    keys = np.array([key for key, _ in hits], np.int64)
    return keys, pa.Table.from_arrays(arrays, names=list(columns))
