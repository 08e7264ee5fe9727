"""The rows of keys from their hits, within limits, with the cost."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.arrow import compute as pc
from gnomon.shadow.errors import BeyondBound
from gnomon.shadow.fetch.fetcher import Fetcher, Located, Part, row_bytes
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.lookup import Hit, Hits, ParsedKey, entry_rows
from gnomon.shadow.metadata import View, check_names, check_number
from gnomon.shadow.storage import check_deadline
from gnomon.shadow.values import given_keys

# Iterables that are no list of keys: their items are characters, bytes, columns, or in no order.

SHARE_BYTES = 16 << 20  # approximate size in memory of the rows that are read before they are counted
NUMBER_BYTES = 8  # of a value that is neither text nor bytes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Limits of a whole answer: rows, and bytes of their values in memory. None is no limit. `rows_before` and
    `bytes_before` count what the answer already has, if its keys are looked up in several queries."""

    rows: int | None = None
    bytes: int | None = None
    rows_before: int = 0
    bytes_before: int = 0

    def too_many_rows(self, matches: int, wanted: int, before: int) -> BeyondBound | None:
        """The error, if any, of adding a key to an answer. `matches` are the key's rows, `wanted` the requested ones,
        `before` the rows already in the answer."""
        most = self.rows
        if most is None or before + wanted <= most:
            return None
        if wanted > most:
            text = (
                f"the key has {matches:,} rows; an answer takes {most:,} at most: set a limit, or narrow it with where"
            )
        else:
            text = (
                f"the key has {matches:,} rows, and the keys before it {before:,}; an answer takes {most:,} at most: "
                "ask for fewer keys at a time"
            )
        return BeyondBound(text, "rows", most, matches)

    def too_many_bytes(self, matches: int, seen: tuple[int, int] | None = None) -> BeyondBound:
        """The error of a key whose rows alone exceed the limit. `seen` has the number of rows read, and their bytes."""
        most = self.bytes or 0
        some = f", {seen[0]:,} of which take {seen[1]:,} bytes" if seen is not None else ""
        text = (
            f"the key has {matches:,} rows{some}; an answer takes {most:,} bytes at most: ask for fewer columns, or "
            "set a limit"
        )
        return BeyondBound(text, "bytes", most, matches)

    def is_full(self, matches: int, held: int) -> BeyondBound:
        """The error of a key whose rows no longer fit into the answer."""
        most = self.bytes or 0
        text = (
            f"the rows of the keys before it take {held:,} bytes; an answer takes {most:,} at most: ask for fewer keys "
            "at a time"
        )
        return BeyondBound(text, "bytes", most, matches)


def bytes_of_rows(table: pa.Table) -> Ints:
    """The bytes that the values of each row take in memory."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        begin = 0
        for chunk in column.chunks:
            sizes[begin : begin + len(chunk)] += _sizes(chunk)
            begin += len(chunk)
    return sizes


def _sizes(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_primitive(kind) or pa.types.is_null(kind):
        return NUMBER_BYTES
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64) + NUMBER_BYTES
    return np.array([array.slice(row, 1).nbytes for row in range(len(array))], np.int64)


def bytes_of_values(values: Iterable[Any]) -> int:
    """The bytes that values take in memory; of a text, those of its UTF-8."""
    return sum(map(_bytes_of, values))


def _bytes_of(value: Any) -> int:
    if isinstance(value, str) and not value.isascii():
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, (str, bytes)) else NUMBER_BYTES


@dataclass(frozen=True)
class Answer:
    """The rows of a key, and the number of its matches, which a limit does not change. `files` has the source file of
    each row, in their order, if the answer was traced."""

    rows: list[dict[str, Any]]
    count: int
    files: Sequence[str] = ()


@dataclass(slots=True)
class Query:
    """A query: keys, partitions, columns, the first `limit` rows of each key, and limits of the whole answer. With
    `each`, the error of a key is its answer and is not raised. `reserve` is called before rows are read, with an
    estimate of the bytes that the rows take in memory; it may refuse them by an exception."""

    keys: Any  # as `given_keys` takes them
    stats: FetchStats
    where: Mapping[str, object] | None = None
    columns: Sequence[str] | None = None
    limit: int | None = None
    bounds: Bounds = field(default_factory=Bounds)
    each: bool = False
    reserve: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for arguments that would give a wrong or empty answer in silence."""
        self.keys = given_keys(self.keys)
        check_names("columns", self.columns)
        check_number("limit", self.limit)
        check_number("most_rows", self.bounds.rows)
        check_number("most_bytes", self.bounds.bytes)

    @property
    def most_of_a_key(self) -> tuple[int | None, int | None]:
        """The most hits, and bytes of their values, of one key that can be part of the answer."""
        most = [number for number in (self.limit, self.bounds.rows) if number is not None]
        return min(most, default=None), self.bounds.bytes


class Found(NamedTuple):
    """The hits of some keys in a snapshot."""

    view: View
    wanted: Sequence[ParsedKey]
    hits: Sequence[Hits]


class Share(NamedTuple):
    """Rows of some of the keys, one key after the other, with the number of rows of each key. Each part holds the rows
    of one file, and their places among all rows."""

    keys: Sequence[int]
    counts: Sequence[int]
    parts: Sequence[Part]


class _Over(Exception):
    """The rows of some keys exceed the space left. It has the rows and bytes read of each key."""

    def __init__(self, seen: dict[int, tuple[int, int]]) -> None:
        super().__init__(seen)
        self.seen = seen


class Rows:
    """The rows of keys, read within limits. `failures` has the error of each key without an answer."""

    def __init__(self, found: Found, columns: Sequence[str], query: Query, as_values: bool = False) -> None:
        """`columns` are the checked columns of the query. `as_values`: whether rows become Python values, and no
        table."""
        self._found = found
        self._as_values = as_values
        self._columns = columns
        self._limit = query.limit
        self._bounds = query.bounds
        self.stats = query.stats
        self._each = query.each
        self._reserve = query.reserve
        self._held = self._bounds.bytes_before  # bytes of the rows that were returned
        self._full = False
        self.failures: dict[int, Exception] = {}
        self.keys = self._within_rows()

    def hits(self, key: int) -> Sequence[Hit]:
        """The hits whose rows are wanted."""
        hits = self._found.hits[key]
        return hits if self._limit is None else hits[: self._limit]

    def _within_rows(self) -> list[int]:
        """The keys whose numbers of rows are within the limits."""
        keys, rows = [], self._bounds.rows_before
        for key, hits in enumerate(self._found.hits):
            wanted = hits.matches if self._limit is None else min(self._limit, hits.matches)
            failure = hits.failure or self._bounds.too_many_rows(hits.matches, wanted, rows)
            if failure is None and hits.too_large:
                failure = self._bounds.too_many_bytes(hits.matches)
            if failure is None:
                keys.append(key)
                rows += wanted
            else:
                self._fail(key, failure)
        return keys

    def _fail(self, key: int, failure: Exception) -> None:
        if not self._each:
            raise failure
        self.failures[key] = failure

    # -- a key-value folder --------------------------------------------------------------------------------------------

    def within_bytes(self) -> list[int]:
        """The keys whose entries fit into the limit of bytes. The entries hold the values."""
        most, keys = self._bounds.bytes, []
        for key in self.keys:
            size = sum(bytes_of_values(hit.included) for hit in self.hits(key)) if most is not None else 0
            count = self._found.hits[key].matches
            if most is None or self._held + size <= most:
                keys.append(key)
                self._held += size
            elif size > most:
                self._fail(key, self._bounds.too_many_bytes(count, (len(self.hits(key)), size)))
            else:
                self._fail(key, self._bounds.is_full(count, self._held))
        return keys

    # -- rows of a source ----------------------------------------------------------------------------------------------

    def shares(self, fetcher: Fetcher) -> Iterator[Share]:
        """The rows of the keys that do not fail, all at once where they fit."""
        waiting = [self.keys]
        while waiting:
            keys = [key for key in waiting.pop() if key not in self.failures]
            if not keys:
                continue
            if self._full:
                for key in keys:
                    self._fail(key, self._bounds.is_full(self._found.hits[key].matches, self._held))
                continue
            try:
                yield self._read(fetcher, keys)
            except _Over as over:
                waiting += self._divided(keys, over.seen)

    def _divided(self, keys: list[int], seen: dict[int, tuple[int, int]]) -> list[list[int]]:
        """The groups of keys to try after a group was too large, the last first. Keys that are too large alone are
        dropped; without any, the group is halved. A key that does not fit after the keys before it ends the answer."""
        most = self._bounds.bytes or 0
        heavy = [key for key, (_, size) in seen.items() if size > most]
        for key in heavy:
            self._fail(key, self._bounds.too_many_bytes(self._found.hits[key].matches, seen[key]))
        if heavy:
            return [keys]
        if len(keys) == 1:
            self._full = True
            return [keys]
        middle = len(keys) // 2
        return [keys[middle:], keys[:middle]]

    def _read(self, fetcher: Fetcher, keys: list[int]) -> Share:
        """The rows of some keys. _Over where they exceed the space left; for a single key that fits alone, only after
        all its rows were read."""
        most = self._bounds.bytes
        counts = [len(self.hits(key)) for key in keys]
        located = [Located(hit, self._found.wanted[key].stored) for key in keys for hit in self.hits(key)]
        if self._reserve is not None:
            rows_of = Counter(one.hit.file for one in located)
            estimated = sum(rows * row_bytes(file) for file, rows in rows_of.items())
            self._reserve(self._held - self._bounds.bytes_before + min(estimated, self._bounds.bytes or estimated))
        room = None if most is None else most if len(keys) == 1 else most - self._held
        parts: list[Part] = []
        size = 0
        for part in fetcher.parts(
            located,
            self._columns,
            self.stats.source,
            share_bytes=None if most is None else SHARE_BYTES,
            each=self._each,
            trace=self.stats.trace,
            as_values=self._as_values,
        ):
            if part.failure is not None:
                owner = _owners(keys, counts)
                for key in set(owner[list(part.places)].tolist()):
                    self.failures[key] = part.failure
                continue
            parts.append(part)
            if room is not None:
                size += int(self._sizes(part).sum()) if part.values is not None else self._asked(part).nbytes
                if size > room:
                    raise _Over(self._seen(parts, _owners(keys, counts)))
        if most is not None and self._held + size > most:
            raise _Over(self._seen(parts, _owners(keys, counts)))
        self._held += size
        return Share(keys, counts, parts)

    def _asked(self, part: Part) -> pa.Table:
        """The requested columns of a part."""
        return part.table.select([name for name in self._columns if name in part.table.column_names])

    def _sizes(self, part: Part) -> Ints:
        """The bytes that the requested values of each row of a part take in memory."""
        if part.values is None:
            return bytes_of_rows(self._asked(part))
        columns = [part.values[name] for name in self._columns if name in part.values]
        return np.array(
            [bytes_of_values(row) for row in zip(*columns, strict=True)] or [0] * len(part.places), np.int64
        )

    def _seen(self, parts: Sequence[Part], owner: np.ndarray) -> dict[int, tuple[int, int]]:
        """The rows read of each key, and their bytes. `owner` has the key of each place."""
        seen: dict[int, tuple[int, int]] = {}
        for part in parts:
            owners, sizes = owner[list(part.places)], self._sizes(part)
            for key in np.unique(owners).tolist():
                own = sizes[owners == key]
                rows, size = seen.get(key, (0, 0))
                seen[key] = (rows + len(own), size + int(own.sum()))
        return seen


def _owners(keys: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """The key of each place, one key after the other."""
    return np.repeat(np.array(keys, np.int64), counts)


def answers(found: Found, fetcher: Fetcher | None, query: Query) -> list[Answer | Exception]:
    """The answer of each key, or, with the query's `each`, its error. Without a fetcher, as in a key-value folder, the
    entries are the rows."""
    begin = time.perf_counter_ns()
    stats, columns = query.stats, found.view.checked_columns(query.columns)
    rows = Rows(found, columns, query, as_values=True)
    made: dict[int, list[dict[str, Any]]] = {}
    if fetcher is None:
        keys = rows.within_bytes()
        chosen = [rows.hits(key) for key in keys]
        made |= zip(keys, entry_rows(found.view, [found.wanted[key] for key in keys], chosen, columns), strict=True)
    else:
        for share in rows.shares(fetcher):
            filled: list[dict[str, Any]] = [{} for _ in range(sum(share.counts))]
            for part in share.parts:
                check_deadline("rows to be made")
                fetcher.fill(filled, part, columns)
            for key, (first, end) in zip(share.keys, pairwise(accumulate(share.counts, initial=0)), strict=True):
                made[key] = filled[first:end]
    stats.add_fetch(begin)
    traced = stats.trace is not None and fetcher is not None
    return [
        failure
        if (failure := rows.failures.get(key)) is not None
        else Answer(made[key], hits.matches, [hit.file.path for hit in rows.hits(key)] if traced else ())
        for key, hits in enumerate(found.hits)
    ]
