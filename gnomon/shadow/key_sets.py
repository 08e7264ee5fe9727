"""Sets of keys: what one of two indexes has and the other has not, keys with several rows, and keys that a parent
lacks. Sources are not read.

The keys of each index are read once, in key order, from its index files. Two such orders are merged piece by piece,
whatever the buckets and the layouts of the indexes are, so that memory holds some keys of each index file. Where both
hash their keys alike, some buckets are merged at a time. Columns that are not the key are sorted first, in temporary
files where they are many."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import LONGEST_DECIMAL, key_type, mean_the_same
from gnomon.btree.keys import adjacent, bisect, comparable, key_order, stored_values
from gnomon.shadow.errors import UsageError
from gnomon.shadow.index import Index, open_index
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import POINTER, Piece, entry_columns, shown_column
from gnomon.shadow.metadata import KeyColumn
from gnomon.shadow.storage import Place
from gnomon.shadow.write import writing_temporary_files

SIDE, CHANGED, ROWS = "_side", "_changed", "_rows"  # columns beside those of the index
FIRST, SECOND = "first", "second"
FILES_AT_ONCE = 64  # index files that are merged at a time where keys are hashed alike
SORTED_ROWS, SORTED_BYTES = 1 << 22, 256 << 20  # of other columns than the key, which are sorted in memory
PIECE_ROWS = 1 << 16  # of them that are read back at a time
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Counts = dict[str, int]
Pieces = Iterator[Piece]
Column = TypeVar("Column")


class KeySet:
    """Keys that were found, in Arrow tables; each iteration reads the indexes again. A table has the columns of the key
    in stored form (`keys`), `_side` (`first` or `second`, the index that has them), and `_rows`, the number of its live
    rows. A set of rows also has the included columns (`included`), and `_changed`: whether both indexes have the key,
    with other rows. `schema` has the columns. `snapshots` are the snapshots that are read, in the order of the
    indexes."""

    def __init__(
        self,
        indexes: Sequence[OpenIndex],
        keys: Sequence[KeyColumn],
        included: Sequence[KeyColumn] | None,
        found: Callable[[Counts], Iterator["_Found"]],
    ) -> None:
        self._columns, self._found = [*keys, *(included or ())], found
        self.keys = [key.name for key in keys]
        self.included = None if included is None else [one.name for one in included]
        self.snapshots = [one.view.snapshot.number for one in indexes]
        fields = [(one.name, key_type(one.type).arrow) for one in self._columns]
        more = [(SIDE, pa.string()), *([] if included is None else [(CHANGED, pa.bool_())]), (ROWS, pa.int64())]
        self.schema = pa.schema([*fields, *more])
        for name in self.schema.names:
            if self.schema.names.count(name) > 1:
                raise UsageError(f"a column {name}, which the result has, too", indexes[0].location)
        self._counts: Counts | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        counts: Counts = {}
        for columns, of_second, changed, rows in self._found(counts):
            sides = pa.array([FIRST, SECOND]).take(pa.array(of_second.astype(np.int8)))
            more = [sides, *([] if self.included is None else [pa.array(changed)]), pa.array(rows)]
            yield pa.Table.from_arrays([*columns, *more], schema=self.schema)
        self._counts = counts

    @property
    def counts(self) -> Counts:
        """The numbers of keys, by what they are. Reads the indexes, unless an iteration has ended."""
        if self._counts is None:
            for _ in self:
                pass
        assert self._counts is not None
        return self._counts

    @property
    def found(self) -> int:
        """The number of keys that were found: 0 if the test that this is holds."""
        return sum(self.counts.get(name, 0) for name in (FIRST, SECOND, "changed"))

    def shown(self, table: pa.Table) -> list[tuple[object, ...]]:
        """The columns of the index, of each row of a table, as rows of the source show them."""
        stored = [stored_values(table.column(i).combine_chunks(), one.type) for i, one in enumerate(self._columns)]
        return list(zip(*map(shown_column, stored, self._columns), strict=True))


class _Found(NamedTuple):
    """Rows of a result: the columns of the index, and for each row whether it is of the second index, whether both
    indexes have its key, and its number of rows."""

    columns: list[pa.Array]
    of_second: Mask
    changed: Mask
    rows: Ints


def diff(first: Index | Place, second: Index | Place, included: bool = False) -> KeySet:
    """The keys that one of two indexes has and the other has not. A null is a value, and all NaN are one. With
    `included` also the keys that both have with other rows: of these, the rows of key and included columns that only
    one has, or has another number of times.

    `counts` has `first` and `second`, the keys that only this index has, `both`, and with `included` `changed`, those
    of `both` with other rows. UsageError where types of columns cannot be compared, where only one of two columns is a
    partition column, and where included columns have other names; other errors as of a range of all keys, and
    DamagedIndexFile where an index file has other bytes than were written."""
    return _compared(_keys_of(first, included), _keys_of(second, included), included, of_both=True)


def orphans(child: Index | Place, parent: Index | Place, columns: Sequence[str] | None = None) -> KeySet:
    """The keys of `child` that `parent` has not. A key with a null is no orphan. `columns` are columns of the child's
    index, by default its key, which refer to the key of `parent`: columns of the key, included and partition columns.

    `counts` has `first`, the orphans, `both`, and `nulls`, the keys of `child` that have a null; each key is counted
    once, and `_rows` has its rows. Errors as of `diff`, and UsageError for a column that the index does not have."""
    return _compared(_keys_of(child) if columns is None else _values_of(child, columns), _keys_of(parent), False, False)


def unique(index: Index | Place) -> KeySet:
    """The keys that have several live rows; a key with a null is not one. `counts` has `first`, these keys, `keys`, all
    distinct keys without a null, and `nulls`, the distinct keys that have a null. Errors as of `diff`."""
    stream = _keys_of(index)

    def found(counts: Counts) -> Iterator[_Found]:
        counts.update({FIRST: 0, "keys": 0, "nulls": 0})
        for in_bucket in _parts([stream]):
            for columns, rows in stream.pieces(in_bucket):
                null = _has_null(columns)
                again = (rows > 1) & ~null
                counts["keys"] += int((~null).sum())
                counts["nulls"] += int(null.sum())
                counts[FIRST] += int(again.sum())
                if again.any():
                    none = np.zeros(int(again.sum()), bool)
                    yield _Found(
                        stream.in_order([one.filter(pa.array(again)) for one in columns]), none, none, rows[again]
                    )

    return KeySet([stream.index], stream.in_order(stream.columns), None, found)


# -- the columns of an index ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stream:
    """Distinct rows of some columns of an index, in the order of these columns: `pieces` of those in some buckets, or
    of all. The first `keys` columns are the key; all rows of a key are in one piece. `places` says for each of them its
    place in the key. `spreads`: its index files have the keys by their hash."""

    index: OpenIndex
    columns: list[KeyColumn]
    places: list[int]
    pieces: Callable[[Callable[[int], bool] | None], Pieces]
    spreads: bool

    @property
    def keys(self) -> int:
        return len(self.places)

    def in_order(self, columns: Sequence[Column]) -> list[Column]:
        """Columns of the stream, with those of the key in their places."""
        return [columns[self.places.index(place)] for place in range(self.keys)] + list(columns[self.keys :])


def _opened(index: Index | Place) -> OpenIndex:
    return OpenIndex.of(index if isinstance(index, Index) else open_index(index)).here()


def _keys_of(index: Index | Place, included: bool = False) -> _Stream:
    opened = _opened(index)
    spec = opened.spec
    places = sorted(range(len(spec.keys)), key=lambda place: spec.keys[place].partition)
    columns = [spec.keys[place] for place in places] + list(spec.include if included else ())
    if included and not spec.include:
        raise UsageError("the index has no included columns; build it with --include", opened.location)

    def pieces(in_bucket: Callable[[int], bool] | None) -> Pieces:
        return opened.distinct_rows(LookupStats(), included, in_bucket)

    return _Stream(opened, columns, places, pieces, spec.cuts is None)


def _values_of(index: Index | Place, names: Sequence[str]) -> _Stream:
    """Columns of the index that may be no key, which are sorted."""
    opened = _opened(index)
    known = {one.source: one for one in entry_columns(opened.spec) if one.part != POINTER}
    forms = {one.name: one for one in (*opened.spec.keys, *opened.spec.include)}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"the entries have no column {', '.join(unknown)}; they have {', '.join(known)}"
        raise UsageError(what if names else "columns: expected one or more", opened.location)
    if len(set(names)) < len(names):
        raise UsageError(f"columns: {', '.join(names)}; expected each of them once", opened.location)
    wanted = [known[name] for name in names]
    columns = [forms.get(one.source, KeyColumn(one.source, one.type)) for one in wanted]

    def pieces(_: Callable[[int], bool] | None) -> Pieces:
        batches = opened.values(wanted, LookupStats())
        return _sorted((batch.columns for batch in batches), [one.type for one in wanted])

    return _Stream(opened, columns, list(range(len(columns))), pieces, False)


def _common(one: KeyColumn, other: KeyColumn) -> KeyColumn | None:
    """The column in the type in which two columns are compared, which holds all values of both; None where there is
    none."""
    if not mean_the_same(one.source_type, other.source_type):
        return None
    if one.type == other.type:
        return one
    types = {one.type, other.type}
    wide = None
    if types <= DIGITS.keys():
        wide = "bigint"
    elif types == {"float", "double"}:
        wide = "double"
    elif any(key_type(name).decimal for name in types):
        shapes = [key_type(name).decimal or (DIGITS.get(name, LONGEST_DECIMAL + 1), 0) for name in types]
        scale = max(shape[1] for shape in shapes)
        digits = max(shape[0] - shape[1] for shape in shapes) + scale
        wide = f"decimal({digits},{scale})" if digits <= LONGEST_DECIMAL else None
    return None if wide is None else replace(one, type=wide, source_type=None)


def _columns_of_both(first: _Stream, second: _Stream) -> list[KeyColumn]:
    """The columns of the first stream, in the types of the comparison. UsageError where they cannot be compared."""
    one, other = ([replace(c, partition=False) for c in s.in_order(s.columns)] for s in (first, second))
    count = first.keys
    if count != second.keys:
        what = f"a key of {second.keys} columns; expected {count}, as {first.index.location} has"
        raise UsageError(what, second.index.location)
    names = [[column.name for column in some[count:]] for some in (one, other)]
    if sorted(names[0]) != sorted(names[1]):
        what = f"included columns {', '.join(names[1])}; expected {', '.join(names[0])}, as {first.index.location} has"
        raise UsageError(what, second.index.location)
    of_name = {column.name: column for column in other[count:]}
    common = []
    for a, b in zip(one, [*other[:count], *(of_name[name] for name in names[0])], strict=True):
        found = _common(a, b)
        if found is None:
            types = [column.source_type or column.type for column in (a, b)]
            what = f"{b.name} is {types[1]}, which is not compared with {a.name} of {first.index.location}: {types[0]}"
            raise UsageError(what, second.index.location)
        common.append(found)
    if first.places != second.places:
        what = f"other columns of its key are partition columns than of {first.index.location}"
        raise UsageError(f"{what}; keys are compared where the same ones are", second.index.location)
    return [common[place] for place in first.places] + common[count:]


def _parts(streams: Sequence[_Stream]) -> list[Callable[[int], bool] | None]:
    """The buckets to read at a time, so that a key lies in the same part of each stream; None for all buckets."""
    specs = [one.index.spec for one in streams]
    if not all(one.spreads for one in streams) or any(spec.key_types != specs[0].key_types for spec in specs):
        return [None]
    # Numbers of hashed buckets, which folders may have of their own, divide `spec.buckets`.
    least = math.gcd(*(n for spec in specs for n in (spec.buckets, *spec.folder_buckets.values())))
    files = sum(len(some) for one in streams for some in one.index.view.index_files.values())
    parts = min(least, -(-files // FILES_AT_ONCE))
    if parts <= 1:
        return [None]

    def in_part(part: int, bucket: int) -> bool:
        return bucket % least % parts == part

    return [partial(in_part, part) for part in range(parts)]


# -- two indexes ------------------------------------------------------------------------------------------------------


def _compared(first: _Stream, second: _Stream, included: bool, of_both: bool) -> KeySet:
    """The keys that one of two streams has; not `of_both`: that the first one has, without a null."""
    columns = _columns_of_both(first, second)
    types, count = [one.type for one in columns], first.keys
    of_name = {one.name: place for place, one in enumerate(second.columns)}
    places = [*range(count), *(of_name[one.name] for one in columns[count:])]

    def found(counts: Counts) -> Iterator[_Found]:
        names = [FIRST, *([SECOND] if of_both else []), "both", *(["changed"] if included else [])]
        counts.update(dict.fromkeys(names if of_both else [*names, "nulls"], 0))
        for in_bucket in _parts([first, second]):
            streams = [_cast(first.pieces(in_bucket), types), _cast(second.pieces(in_bucket), types, places)]
            for merged in _merged(streams, types, count):
                some = _told_apart(merged, counts, included, of_both)
                if len(some.rows):
                    yield some._replace(columns=first.in_order(some.columns))

    return KeySet(
        [first.index, second.index], first.in_order(columns)[:count], columns[count:] if included else None, found
    )


def _told_apart(merged: "_Merged", counts: Counts, included: bool, of_both: bool) -> _Found:
    """The rows to show of merged ones, whose keys are counted."""
    of_second, keys = merged.stream == 1, merged.keys
    has_second = np.logical_or.reduceat(of_second, keys)
    has_first = np.logical_or.reduceat(~of_second, keys)
    both = has_first & has_second
    of_key = np.repeat(np.arange(len(keys)), np.diff(np.append(keys, len(of_second))))
    wanted = ~both if of_both else ~has_second
    if not of_both:
        null = np.logical_or.reduceat(_has_null(merged.columns), keys)
        counts["nulls"] += int((null & has_first).sum())
        both, wanted = both & ~null, wanted & ~null
    counts["both"] += int(both.sum())
    counts[FIRST] += int((wanted & ~has_second).sum())
    if of_both:
        counts[SECOND] += int((wanted & ~has_first).sum())
    picked = wanted[of_key]
    if included:
        sizes = np.diff(np.append(merged.firsts, len(of_second)))
        differs = sizes == 1
        pairs = merged.firsts[~differs]
        differs[~differs] = merged.rows[pairs] != merged.rows[pairs + 1]
        other = np.repeat(differs, sizes)
        counts["changed"] += int((np.logical_or.reduceat(other, keys) & both).sum())
        picked |= other
    which = pa.array(picked)
    columns = [one.filter(which) for one in merged.columns]
    return _Found(columns, of_second[picked], both[of_key][picked], merged.rows[picked])


def _has_null(columns: Sequence[pa.Array]) -> Mask:
    mask: Mask = np.logical_or.reduce([one.is_null().to_numpy(False) for one in columns])
    return mask


def _cast(pieces: Pieces, types: Sequence[str], places: Sequence[int] | None = None) -> Pieces:
    """The pieces with rows in these types, of the columns at these places. Rows of a piece whose columns are not in
    their order any more are sorted."""
    moved = places is not None and list(places) != list(range(len(places)))
    for columns, rows in pieces:
        if not len(rows):
            continue
        chosen = columns if places is None else [columns[place] for place in places]
        made = Piece([one.cast(key_type(kind).arrow) for one, kind in zip(chosen, types, strict=True)], rows)
        yield _in_order(made, types) if moved else made


# -- streams of rows in order -----------------------------------------------------------------------------------------


class _Merged(NamedTuple):
    """Rows in order, the number of rows of each, and its stream. `firsts` are the places of rows that differ from the
    row before, `keys` those of rows of another key."""

    columns: list[pa.Array]
    rows: Ints
    stream: Ints
    firsts: Ints
    keys: Ints


def _merged(streams: Sequence[Pieces], types: Sequence[str], keys: int) -> Iterator[_Merged]:
    """Merge streams, each of which has a row once, and all rows of a key (the first `keys` columns) in one piece. All
    rows of a key, of all streams, come together."""
    held = {number: piece for number, stream in enumerate(streams) if (piece := next(stream, None)) is not None}
    while held:
        forms = {number: _comparable(piece, types) for number, piece in held.items()}
        lasts = [[one.slice(len(one) - 1) for one in form[:keys]] for form in forms.values()]
        ends = [pa.concat_arrays(some) for some in zip(*lasts, strict=True)]
        least = pa.array(key_order(ends)[:1])
        bound = [one.take(least) for one in ends]  # up to this key, all streams are read
        taken, compared, rows, stream = list[list[pa.Array]](), list[list[pa.Array]](), [], []
        for number, piece in list(held.items()):
            form = forms[number]
            count = int(bisect(form[:keys], bound, True)[0])
            taken.append([one.slice(0, count) for one in piece.columns])
            compared.append([one.slice(0, count) for one in form])
            rows.append(piece.rows[:count])
            stream.append(np.full(count, number))
            following: Piece | None = Piece([one.slice(count) for one in piece.columns], piece.rows[count:])
            if count == len(piece.rows):
                following = next(streams[number], None)
            if following is None:
                del held[number]
            else:
                held[number] = following
        joined = [pa.concat_arrays(parts) for parts in zip(*compared, strict=True)]
        order = key_order(joined)
        picked = pa.array(order)
        joined = [one.take(picked) for one in joined]
        columns = [pa.concat_arrays(parts).take(picked) for parts in zip(*taken, strict=True)]
        firsts = _firsts(joined)
        of_keys = firsts if keys == len(types) else _firsts(joined[:keys])
        yield _Merged(columns, np.concatenate(rows)[order], np.concatenate(stream)[order], firsts, of_keys)


def _comparable(piece: Piece, types: Sequence[str]) -> list[pa.Array]:
    return [comparable(one, kind) for one, kind in zip(piece.columns, types, strict=True)]


def _firsts(columns: Sequence[pa.Array]) -> Ints:
    """The places of rows that differ from the row before."""
    firsts: Ints = np.flatnonzero(np.concatenate([[True], ~adjacent(columns)[0]]))
    return firsts


def _in_order(piece: Piece, types: Sequence[str]) -> Piece:
    """The rows of a piece in order, each once."""
    form = _comparable(piece, types)
    order = key_order(form)
    picked = pa.array(order)
    firsts = _firsts([one.take(picked) for one in form])
    chosen = pa.array(order[firsts])
    return Piece([one.take(chosen) for one in piece.columns], np.add.reduceat(piece.rows[order], firsts))


def _sorted(batches: Iterable[list[pa.Array]], types: Sequence[str]) -> Pieces:
    """The distinct rows of batches of columns, in order. Rows beyond SORTED_ROWS or SORTED_BYTES are sorted in
    temporary files. StorageError where these cannot be written."""
    held, count, size = list[list[pa.Array]](), 0, 0
    files = list[Path]()
    with ExitStack() as opened:

        def collected() -> Piece:
            columns = [pa.concat_arrays(parts) for parts in zip(*held, strict=True)]
            return _in_order(Piece(columns, np.ones(count, np.int64)), types)

        for columns in batches:
            if not len(columns[0]):
                continue
            held.append([one.cast(key_type(kind).arrow) for one, kind in zip(columns, types, strict=True)])
            count += len(columns[0])
            size += sum(one.nbytes for one in columns)
            if count >= SORTED_ROWS or size >= SORTED_BYTES:
                if not files:
                    with writing_temporary_files():
                        folder = opened.enter_context(TemporaryDirectory(prefix="gnomon-keys-"))
                files.append(Path(folder, str(len(files))))
                _write(collected(), files[-1])
                held, count, size = [], 0, 0
        streams = [_read(file) for file in files]
        if held:
            streams.append(iter([collected()]))
        held = []
        if len(streams) == 1:
            yield from streams[0]
        else:
            for columns, rows, _, firsts, _ in _merged(streams, types, len(types)):
                picked = pa.array(firsts)
                yield Piece([one.take(picked) for one in columns], np.add.reduceat(rows, firsts))


def _write(piece: Piece, file: Path) -> None:
    batch = pa.RecordBatch.from_arrays(
        [*piece.columns, pa.array(piece.rows)], [str(i) for i in range(len(piece.columns) + 1)]
    )
    with writing_temporary_files(), pa.ipc.new_stream(str(file), batch.schema) as out:
        out.write_table(pa.Table.from_batches([batch]), max_chunksize=PIECE_ROWS)


def _read(file: Path) -> Pieces:
    with pa.OSFile(str(file)) as opened, pa.ipc.open_stream(opened) as stream:
        for batch in stream:
            yield Piece(batch.columns[:-1], batch.column(len(batch.columns) - 1).to_numpy())
