"""Rows by number, as data loaders of training programs ask for them: a map-style data set."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from gnomon.shadow.errors import UsageError
from gnomon.shadow.index import Index, open_index
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.storage import Place
from gnomon.shadow.values import given_keys, plain_values


class Samples:
    """A sequence with the row of each key: `samples[i]` is the row, a dictionary, of the key with number `i`, from 0.

    `torch.utils.data.DataLoader` takes it as a map-style data set. It asks for a batch by `__getitems__`, which reads
    pages that several rows share once. It can be pickled, so that worker processes open the index themselves. All rows
    are of the snapshot that the index has when this is made."""

    def __init__(
        self,
        index: Index | Place,
        keys: object = None,
        columns: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
    ) -> None:
        """`keys` as in `Index.fetch_many`, in this order; None means all keys of the index in its order, which are
        read from it and kept in memory. `columns` and `where` as in `Index.fetch`.

        UsageError where two rows have one of all keys; other errors as in `Index.fetch_many`."""
        self._index = OpenIndex.of(index if isinstance(index, Index) else open_index(index)).here()
        self._columns = None if columns is None else list(columns)
        self._where = where
        given = [] if keys is None else given_keys(keys)
        self._index.check(given, columns, where)
        self._keys = self._all_keys() if keys is None else given

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """The row of a key. Negative numbers count from the end. IndexError beyond the keys; UsageError where the key
        has no row, or several; other errors as in `Index.fetch`."""
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of some keys, in the order of their numbers. Errors as of one row."""
        places = [self._place(number) for number in numbers]
        keys = self._keys
        asked = keys.take(pa.array(places, pa.int64())) if isinstance(keys, pa.Array) else [keys[i] for i in places]
        answers = self._index.answer_many(asked, self._columns, self._where, limit=1)
        for place, answer in zip(places, answers, strict=True):
            if answer.count != 1:
                key = keys[place].as_py() if isinstance(keys, pa.Array) else keys[place]
                raise _not_one(key, answer.count, self._index.location)
        return [answer.rows[0] for answer in answers]

    def __repr__(self) -> str:
        return f"<Samples of {self._index!r}: {len(self):,} keys>"

    def _place(self, number: int) -> int:
        place = operator.index(number)
        if not -len(self) <= place < len(self):
            raise IndexError(f"number {place}: expected one from {-len(self)} to {len(self) - 1}")
        return place % len(self)

    def _all_keys(self) -> pa.Array:
        """All keys in their order: from the index alone, if its entries have the key's columns in the source's form."""
        index, names = self._index, self._index.keys
        asked, stored = RangeQuery(where=self._where), index.spec.stored_keys
        if [one.name for one in stored if one.source_type is None] == names:
            tables = [table.select(names) for table in index.entry_tables(asked)]
        else:
            tables = list(index.range_tables(asked, names))
        if not tables:
            return pa.array([], pa.struct([]))
        keys = pa.concat_tables(tables, promote_options="permissive")
        values = pa.table([plain_values(column.combine_chunks()) for column in keys.columns], names=names)
        groups = values.group_by(names).aggregate([([], "count_all")]).sort_by([("count_all", "descending")])
        if len(groups) < len(keys):
            first = groups.slice(0, 1).to_pylist()[0]
            raise _not_one(tuple(first[name] for name in names), first["count_all"], index.location)
        return keys.to_struct_array().combine_chunks()


def _not_one(key: object, rows: int, where: str) -> UsageError:
    return UsageError(f"the key {key!r} has {rows} rows", where, expected="one row for each key; where= may select it")
