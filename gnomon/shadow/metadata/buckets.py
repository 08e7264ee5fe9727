"""The bucket of a key: by the hash of the key, or by the range of keys that it lies in.

Hashed buckets are those of Spark's bucketBy, and about equally large whatever the keys are. Ranges of keys are for
indexes whose users ask for keys in order: a short range lies in one bucket, where hashed ones spread it over all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.hashing import buckets_of, plain_column, spark_hash
from gnomon.btree.key_types import Stored
from gnomon.btree.keys import Key, OrderKey, bisect, comparable, key_order, order_key, stored_array, stored_values


class BucketOrder(StrEnum):
    """How keys are distributed to buckets: by their hash, or in ranges."""

    HASH = "hash"
    RANGE = "range"


HASH, RANGE = BucketOrder
LONGEST_CUT = 100  # characters or bytes of a value: a shorter text is less, so that it cuts as well

Ints = npt.NDArray[np.int64]


def bytes_order(key: Key) -> OrderKey:
    """A key in a form that Python compares; text as its bytes, which the end of a range may be."""
    return order_key(tuple(part.encode() if isinstance(part, str) else part for part in key))


@dataclass(frozen=True)
class HashBuckets:
    """The buckets `pmod(hash(key), number)` of keys of these types."""

    types: tuple[str, ...]
    number: int

    def of(self, key: Key) -> int:
        """The bucket of a key in stored form."""
        return spark_hash(key, self.types) % self.number

    def of_columns(self, columns: Sequence[pa.Array], plain: Sequence[pa.Array] | None = None) -> Ints:
        """The bucket of each row of key columns. `plain` are the columns in plain form, where the caller has them."""
        return buckets_of(plain or [plain_column(*one) for one in zip(columns, self.types, strict=False)], self.number)

    def between(self, low: Key | None, high: Key | None) -> range:
        """The buckets of the keys from `low` to before `high`."""
        return range(self.number)


@dataclass(frozen=True)
class RangeBuckets:
    """The buckets between the ascending keys `cuts`: bucket i has the keys from cut i - 1 to before cut i."""

    types: tuple[str, ...]
    cuts: tuple[Key, ...]

    def of(self, key: Key) -> int:
        """The bucket of a key in stored form."""
        return bisect_right(self._ordered, bytes_order(key))

    def of_columns(self, columns: Sequence[pa.Array], plain: Sequence[pa.Array] | None = None) -> Ints:
        """The bucket of each row of key columns."""
        keys = [comparable(*one) for one in zip(columns, self.types, strict=False)]
        return bisect(self._columns, keys, past_equal=True)

    def between(self, low: Key | None, high: Key | None) -> range:
        """The buckets of the keys from `low` to before `high`."""
        first = 0 if low is None else bisect_right(self._ordered, bytes_order(low))
        last = len(self.cuts) if high is None else bisect_left(self._ordered, bytes_order(high))
        return range(first, last + 1)

    @cached_property
    def _ordered(self) -> list[OrderKey]:
        return [bytes_order(cut) for cut in self.cuts]

    @cached_property
    def _columns(self) -> list[pa.Array]:
        columns = zip(*self.cuts, strict=True) if self.cuts else [()] * len(self.types)
        return [comparable(stored_array(list(one), kind), kind) for one, kind in zip(columns, self.types, strict=True)]


Buckets = HashBuckets | RangeBuckets


def cuts_of(columns: Sequence[pa.Array], types: Sequence[str], buckets: int) -> tuple[Key, ...]:
    """Keys that cut a sample of keys, given by its columns, in about equal parts, up to `buckets` of them. There are
    fewer where one key is more than a part."""
    rows = len(columns[0])
    order = key_order([comparable(*one) for one in zip(columns, types, strict=True)])
    picks = pa.array(order[np.unique(np.arange(1, buckets) * rows // buckets)] if rows else order)
    values = [stored_values(column.take(picks), kind) for column, kind in zip(columns, types, strict=True)]
    keys = [tuple(map(_shortened, key)) for key in zip(*values, strict=True)]
    found = {bytes_order(key): key for key in keys if all(part == part for part in key)}  # without NaN, the greatest
    least = bytes_order((None,) * len(types))
    return tuple(found[key] for key in sorted(found) if key != least)


def is_ascending(cuts: Sequence[Key]) -> bool:
    """Whether each cut is greater than the one before."""
    ordered = [bytes_order(cut) for cut in cuts]
    return all(before < after for before, after in pairwise(ordered))


def _shortened(value: Stored) -> Stored:
    return value[:LONGEST_CUT] if isinstance(value, str | bytes) else value
