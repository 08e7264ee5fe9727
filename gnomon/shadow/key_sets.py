"""Sets of keys: what one of two indexes has and the other has not, and keys with several rows. Sources are not read.

The keys of each index are read once, in key order, from its index files. Two such orders are merged piece by piece,
whatever the buckets and the layouts of the indexes are, so that memory holds some keys of each index file."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent, comparable, compare, key_order, stored_values
from gnomon.shadow.errors import UsageError
from gnomon.shadow.index import Index, open_index
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import shown_column
from gnomon.shadow.metadata import KeyColumn
from gnomon.shadow.storage import Place

SIDE, ROWS = "_side", "_rows"  # columns beside those of the key
FIRST, SECOND = "first", "second"
Mask = npt.NDArray[np.bool_]
Piece = tuple[list[pa.Array], npt.NDArray[np.int64]]  # distinct keys, and their numbers of rows
Found = Callable[[dict[str, int]], Iterator[pa.Table]]


class KeySet:
    """Keys that were asked for, in Arrow tables, and their `counts`, which are complete after all tables. Each
    iteration reads the indexes again. A table has the columns of the key in stored form (`keys`), `_side` (`first` or
    `second`, the index that has the key), and `_rows`, the number of its live rows. `snapshots` are the snapshots that
    are read, in the order of the indexes."""

    def __init__(self, keys: tuple[KeyColumn, ...], indexes: list[OpenIndex], found: Found) -> None:
        self._columns, self._found = keys, found
        self.keys = [key.name for key in keys]
        self.snapshots = [one.view.snapshot.number for one in indexes]
        self.counts: dict[str, int] = {}

    def __iter__(self) -> Iterator[pa.Table]:
        self.counts.clear()
        yield from self._found(self.counts)

    def shown(self, table: pa.Table) -> list[tuple[object, ...]]:
        """The keys of a table as rows of the source show them."""
        stored = [stored_values(table.column(key.name).combine_chunks(), key.type) for key in self._columns]
        return list(zip(*map(shown_column, stored, self._columns), strict=True))

    def _table(self, columns: list[pa.Array], side: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Table:
        return pa.table([*columns, side, pa.array(rows)], names=[*self.keys, SIDE, ROWS])


def diff(first: Index | Place, second: Index | Place) -> KeySet:
    """The keys that one of two indexes has and the other has not. A null is a value, and all NaN are one. `counts` has
    `first` and `second`, the keys that only this index has, and `both`. UsageError where the key types differ or a
    column of a key is a partition column; other errors as of a range of all keys."""
    return _compared(first, second, (FIRST, SECOND), nulls=True)


def orphans(child: Index | Place, parent: Index | Place) -> KeySet:
    """The keys of `child` that `parent` has not. A key with a null is no orphan. `counts` has `first`, the orphans,
    `both`, and `nulls`, the keys of `child` that have a null. Errors as of `diff`."""
    return _compared(child, parent, (FIRST,), nulls=False)


def unique(index: Index | Place) -> KeySet:
    """The keys that have several live rows; a key with a null is not one. `counts` has `first`, these keys, `keys`, all
    distinct keys without a null, and `nulls`, the rows whose key has a null. Errors as of a range of all keys."""
    opened = _pinned(index)

    def found(counts: dict[str, int]) -> Iterator[pa.Table]:
        counts.update({FIRST: 0, "keys": 0, "nulls": 0})
        for columns, rows in opened.distinct_keys(LookupStats()):
            null = _has_null(columns)
            again = (rows > 1) & ~null
            counts["keys"] += int((~null).sum())
            counts["nulls"] += int(rows[null].sum())
            counts[FIRST] += int(again.sum())
            if again.any():
                picked = pa.array(again)
                side = pa.array([FIRST] * int(again.sum()))
                yield result._table([one.filter(picked) for one in columns], side, rows[again])

    result = KeySet(opened.spec.keys, [opened], found)
    return result


def _pinned(index: Index | Place) -> OpenIndex:
    return OpenIndex.of(index if isinstance(index, Index) else open_index(index)).here()


def _widest(type_name: str) -> str:
    """The type in which keys are compared: whole numbers of all sizes are."""
    return "bigint" if type_name in ("tinyint", "smallint", "int") else type_name


def _has_null(columns: list[pa.Array]) -> Mask:
    mask: Mask = np.logical_or.reduce([one.is_null().to_numpy(False) for one in columns])
    return mask


def _compared(first: Index | Place, second: Index | Place, sides: tuple[str, ...], nulls: bool) -> KeySet:
    indexes = [_pinned(first), _pinned(second)]
    keys = tuple(replace(key, type=_widest(key.type)) for key in indexes[0].spec.keys)
    for one in indexes:
        folders = [key.name for key in one.spec.keys if key.partition]
        if folders:
            what = f"the key column {folders[0]} is a partition column; expected keys without them"
            raise UsageError(what, one.location)
    types, others = ([_widest(key.type) for key in one.spec.keys] for one in indexes)
    if types != others:
        what = f"expected the key types {', '.join(types)}, as {indexes[0].location} has; found {', '.join(others)}"
        raise UsageError(what, indexes[1].location)

    def found(counts: dict[str, int]) -> Iterator[pa.Table]:
        counts.update(dict.fromkeys((*sides, "both") if nulls else (*sides, "both", "nulls"), 0))
        for columns, rows, of_second, single in _merged(indexes, types):
            counts["both"] += int((~single).sum()) // 2
            alone = single.copy()
            if SECOND not in sides:
                alone &= ~of_second
            if not nulls:
                null = _has_null(columns)
                counts["nulls"] += int((null & ~of_second).sum())
                counts["both"] -= int((null & ~single).sum()) // 2
                alone &= ~null
            counts[FIRST] += int((alone & ~of_second).sum())
            if SECOND in sides:
                counts[SECOND] += int((alone & of_second).sum())
            if alone.any():
                names = pa.array(np.where(of_second[alone], SECOND, FIRST).tolist(), pa.string())
                yield result._table([one.filter(pa.array(alone)) for one in columns], names, rows[alone])

    result = KeySet(keys, indexes, found)
    return result


def _merged(
    indexes: list[OpenIndex], types: list[str]
) -> Iterator[tuple[list[pa.Array], npt.NDArray[np.int64], Mask, Mask]]:
    """Merge the keys of two indexes: columns, rows, whether a key is of the second index, and whether the other index
    has it not. A key that both have is there twice, in one piece."""
    streams: list[Iterator[Piece]] = [one.distinct_keys(LookupStats()) for one in indexes]
    held: list[Piece | None] = [_next(stream, types) for stream in streams]
    while held[0] is not None or held[1] is not None:
        there = [(side, one) for side, one in enumerate(held) if one is not None]
        forms = [[comparable(c, t) for c, t in zip(one[0], types, strict=True)] for _, one in there]
        lasts = [[c.slice(len(c) - 1, 1) for c in form] for form in forms]
        # The lesser of the last keys: up to it, both are read. Where one index has ended, the last key of the other.
        bound = lasts[0] if len(there) == 1 or compare(lasts[0], lasts[1])[1][0] else lasts[-1]
        columns, keys, rows, sides = list[list[pa.Array]](), list[list[pa.Array]](), [], []
        for (side, one), form in zip(there, forms, strict=True):
            every = pa.array(np.zeros(len(one[1]), np.int64))
            equal, before = compare(form, [c.take(every) for c in bound])
            count = int((equal | before).sum())  # they are in order
            columns.append([c.slice(0, count) for c in one[0]])
            keys.append([c.slice(0, count) for c in form])
            rows.append(one[1][:count])
            sides.append(np.full(count, side == 1))
            rest = [c.slice(count) for c in one[0]], one[1][count:]
            held[side] = rest if len(rest[1]) else _next(streams[side], types)
        joined = [pa.concat_arrays(parts) for parts in zip(*keys, strict=True)]
        order = key_order(joined)
        same = adjacent([c.take(pa.array(order)) for c in joined])[0]
        single = ~(np.append(same, False) | np.insert(same, 0, False))
        picked = pa.array(order)
        shown = [pa.concat_arrays(parts).take(picked) for parts in zip(*columns, strict=True)]
        yield shown, np.concatenate(rows)[order], np.concatenate(sides)[order], single


def _next(stream: Iterator[Piece], types: list[str]) -> Piece | None:
    """The next piece that has keys, in these types."""
    for columns, rows in stream:
        if len(rows):
            return [one.cast(key_type(kind).arrow) for one, kind in zip(columns, types, strict=True)], rows
    return None
