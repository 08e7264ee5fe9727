"""A query for rows of an index: its keys, at one snapshot, for the columns that the index shows, within limits; and
its cost."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from gnomon.service import costs
from gnomon.service.api.shapes import Explain, IndexCost, ReadThrough, SourceCost, Step
from gnomon.service.errors import AnswerTooLarge, BadRequest, KeyNotFound, below_root
from gnomon.service.http import NAMES, Options, cut
from gnomon.service.indexes import KeptAnswer, Place, ServedIndex, hidden_keys, visible, visible_keys
from gnomon.service.memory import Hold
from gnomon.shadow import IndexNotFound, KeyTypeError, SnapshotNotFound, StalePointer, UnknownColumn
from gnomon.shadow.errors import BeyondBound, IndexFileGone
from gnomon.shadow.fetch import Bounds, Query
from gnomon.shadow.lookup import ParsedKey, buckets_of_keys, parse_key
from gnomon.shadow.metadata import IndexSpec, KeyColumn
from gnomon.shadow.newest_version import read_through
from gnomon.shadow.storage import Trace, check_may_wait, is_absolute
from gnomon.shadow.tables import shown_part
from gnomon.shadow.values import shown_key

_KINDS: dict[type, str] = {list: "a list", dict: "an object"}
P = ParamSpec("P")
T = TypeVar("T")
# Memory of a look-up: bytes of unpacked nodes and pages, and the number of copies of its rows (Arrow, Python, text).
PAGE_BYTES, COPIES = 8 << 20, 3
MOST_AT_ONCE = 64 * 1024  # bytes of an answer that must not wait, or of its rows: more take long to make and compress
# Errors that a newer snapshot may not have: a source file changed, or a vacuum removed the index file or the snapshot.
MENDABLE = (StalePointer, IndexFileGone, SnapshotNotFound)
LISTED_CHARACTERS = 1000  # of column names in an error


def read_key(key: object, spec: IndexSpec, place: Place, most_bytes: int) -> ParsedKey:
    """A key in the form of the index. BadRequest and KeyTypeError name the column, what is expected and what was found;
    a column that the index does not show is not named."""
    values = _values(key, spec, place)
    for column, value in values:
        kind = _KINDS.get(type(value))
        if kind is not None:
            _refuse(column, place, f"expected {column.source_type or column.type}, found {kind}")
        if isinstance(value, str):
            check_length(column, value, place, most_bytes)
    try:
        return parse_key([value for _, value in values], spec)
    except KeyTypeError as error:
        if error.column in hidden_keys(place, spec.keys):
            raise BadRequest("the key has a value that is not of its column's type") from None
        raise


def check_length(column: KeyColumn, value: str, place: Place, most_bytes: int) -> None:
    """BadRequest where a value of a key is longer than the service takes."""
    if len(value) * 4 > most_bytes:  # at most 4 bytes a character, seldom counted
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > most_bytes:
            _refuse(column, place, f"a value of {size} bytes; at most {most_bytes} (setting max_key_bytes)")


def _values(key: object, spec: IndexSpec, place: Place) -> list[tuple[KeyColumn, object]]:
    """Each key column with the value that is given for it."""
    names = [column.name for column in spec.keys]
    if isinstance(key, Mapping):
        if key.keys() != set(names):
            found, shown = cut(", ".join(key)) or "none", visible_keys(place, spec.keys)
            hint = f"; ask like /rows?{shown[0]}=VALUE" if shown and not key else ""
            hint += ", or for a range of keys like /rows?_from=VALUE" if hint and shown == names else ""
            if taken := [name for name in shown if name in NAMES]:
                hint = f"; {', '.join(taken)} is an option of every query: ask by POST"
            named = _named(spec, place)
            raise BadRequest(f"the key needs the columns {named}; found {found}{hint}")
        return [(column, key[column.name]) for column in spec.keys]
    values = key if isinstance(key, list) else [key]
    if len(values) != len(names):
        raise BadRequest(f"the key has the columns {_named(spec, place)}; found {len(values)} values")
    return list(zip(spec.keys, values, strict=True))


def _named(spec: IndexSpec, place: Place) -> str:
    """The names of the shown key columns, and "others" if some are hidden."""
    shown = visible_keys(place, spec.keys)
    return ", ".join([*shown, "others"] if len(shown) < len(spec.keys) else shown)


def _refuse(column: KeyColumn, place: Place, why: str) -> NoReturn:
    raise BadRequest(f"key column {column.name}: {why}" if visible_keys(place, [column]) else f"the key: {why}")


def key_shown(wanted: ParsedKey, spec: IndexSpec, place: Place) -> dict[str, Any]:
    """A key by column name. Each value has the form of rows in JSON, whatever form the request used. Hidden columns are
    left out."""
    stored, partitions = iter(wanted.stored), dict(wanted.where)
    values = {
        column.name: shown_key(partitions[column.name] if column.partition else next(stored), column)
        for column in spec.keys
    }
    return {name: values[name] for name in visible_keys(place, spec.keys)}


def key_given(key: object, spec: IndexSpec, place: Place) -> object:
    """An invalid key, which `key_shown` cannot show: the values of the request, with long texts cut, by column name if
    their number is right."""
    if isinstance(key, Mapping):
        return {cut(name): _bounded(value) for name, value in key.items()}
    values = key if isinstance(key, list) else [key]
    if len(values) != len(spec.keys):
        return [_bounded(value) for value in values[: len(spec.keys) + 1]] if isinstance(key, list) else _bounded(key)
    given = {column.name: _bounded(value) for column, value in zip(spec.keys, values, strict=True)}
    return {name: given[name] for name in visible_keys(place, spec.keys)}


def _bounded(value: object) -> object:
    """A value as an error repeats it: a long text is cut; a list or an object is only named as such."""
    return _KINDS.get(type(value)) or (cut(value) if isinstance(value, str) else value)


class Moved(Exception):
    """The query has to be repeated: the index moved to a newer snapshot, or the source file is back."""


class Question:
    """A query of an index at one snapshot, within the memory of `hold`. BadRequest, UnknownColumn and SnapshotNotFound
    for an invalid query.

    A batch looks up its keys in several queries: `keys`, `count`, `rows` and `bytes` count what the answer has so
    far."""

    def __init__(self, served: ServedIndex, options: Options, hold: Hold, may_move: bool) -> None:
        self.served = served
        self.hold = hold
        self.keys = self.count = self.rows = self.bytes = 0
        self.place = served.place
        self.options = options
        self.index = served.at(options.snapshot) if options.snapshot is not None else served.now()
        self.view = self.index.view
        self.spec = self.view.spec
        self.table_version = None if self.view.snapshot.table is None else self.view.snapshot.table.version
        if self.table_version is not None:
            costs.note_version(self.table_version)
        self.stats = costs.new_stats()
        self.may_move = may_move and options.snapshot is None
        self.columns = self._columns(options.columns)
        self.where = self._where(options.where)

    def again(self, hold: Hold) -> None:
        """Begin again with other memory: the costs until now are not those of the answer."""
        self.hold, self.stats = hold, costs.new_stats()

    def query(self, keys: Sequence[object], each: bool = False) -> Query:
        """A query of some keys, within the bounds of the whole answer. With `each`, a key that fails has its error."""
        bounds = Bounds(self.served.max_rows, self.served.max_answer_bytes, self.rows, self.bytes)

        def reserve(size: int) -> None:
            if size > MOST_AT_ONCE:
                check_may_wait("rows of many bytes")
            self.hold.need(PAGE_BYTES + COPIES * size)

        return Query(keys, self.stats, self.where, self.columns, self.options.limit, bounds, each, reserve)

    def _columns(self, asked: Sequence[str] | None) -> list[str]:
        shown = visible(self.place, self.view.columns)
        unknown = [name for name in asked or () if name not in shown]
        if unknown:
            there = cut(", ".join(shown), LISTED_CHARACTERS)
            raise UnknownColumn(f"the source has no column {cut(', '.join(unknown))}; it has {there}")
        return shown if asked is None else list(dict.fromkeys(asked))

    def _where(self, asked: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        for name in asked:
            shown = visible(self.place, self.spec.partitions)
            if name not in shown:
                there = cut(", ".join(shown), LISTED_CHARACTERS) or "none"
                raise BadRequest(f"where: {cut(name)} is not a partition column (there are: {there})")
        self._named = self.view.where(asked)
        return asked

    def read(self, key: object) -> ParsedKey:
        """A key in the form of the index: `keys.read_key`."""
        return read_key(key, self.spec, self.place, self.served.max_key_bytes)

    def shown(self, key: ParsedKey) -> dict[str, Any]:
        """A key as answers show it."""
        return key_shown(key, self.spec, self.place)

    def answer(self, media_type: str, key: ParsedKey, make: Callable[[], tuple[bytes, int]]) -> bytes:
        """The cached answer to a key, or a new one, which `make` returns with the number of its rows. A new answer is
        cached, unless it has an explanation."""
        asked = self._asked(media_type, key)
        kept = None if self.options.explain else self.served.answers.get(asked, self.index)
        if kept is not None:
            if len(kept.body) > MOST_AT_ONCE:
                check_may_wait("a large answer")
            return self._noted(kept)
        body, count = make()
        if count and not self.options.explain:
            self.served.answers.put(asked, KeptAnswer(body, count, dict(self.stats.source.opened)))
        return body

    def at_hand(self, media_type: str, key: ParsedKey) -> bytes | None:
        """The cached answer to a key, without a wait; None if there is none, if it is large, or if memory does not show
        that it is still right."""
        kept = self.served.answers.at_hand(self._asked(media_type, key), self.index.at_hand, MOST_AT_ONCE)
        return None if kept is None else self._noted(kept)

    def _asked(self, media_type: str, key: ParsedKey) -> Hashable:
        """The cache key of an answer."""
        snapshot = self.view.snapshot
        where = tuple((name, tuple(values)) for name, values in self.where.items())
        what = (tuple(self.columns), where, self.options.limit)
        state = (snapshot.number, snapshot.committed_at, self.table_version)
        return (media_type, state, repr(key), what)  # 0.0 and -0.0 are equal

    def _noted(self, kept: KeptAnswer) -> bytes:
        self.stats.snapshot = self.view.snapshot.number
        costs.note(self.stats, 1, kept.count)
        return kept.body

    @property
    def of_snapshot(self) -> dict[str, Any]:
        """The members of an answer that name its snapshot and its version of a lake table."""
        version = {} if self.table_version is None else {"table_version": self.table_version}
        return {"snapshot": self.view.snapshot.number, **version}

    def trace(self) -> None:
        """Record each step from now on, if the request asks for an explanation."""
        if self.options.explain:
            self.stats.trace = Trace()

    def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the index. Moved where the query has to be repeated (`mend`). AnswerTooLarge, which names
        the setting, in place of BeyondBound."""
        try:
            return call(*args, **kwargs)
        except MENDABLE as error:
            self.mend(error)
            if isinstance(error, SnapshotNotFound) and self.options.snapshot is None:
                raise IndexNotFound(
                    error.what, error.path
                ) from None  # the request named no snapshot, and there is no newer one
            raise
        except BeyondBound as error:
            raise too_large(error) from None

    def mend(self, error: Exception) -> None:
        """Raise Moved if the query may succeed now: the index has a newer snapshot than this query, or the source file
        of a StalePointer is again as it was indexed."""
        if not (self.may_move and isinstance(error, MENDABLE)):
            return
        moved = self.served.moved_from(self.view.snapshot.number)
        if moved or (isinstance(error, StalePointer) and self.index.is_as_indexed(error.path)):
            raise Moved

    def not_found(self, key: ParsedKey | None) -> KeyNotFound:
        """The error for a key without a row; None: for a range of keys. It says what the snapshot covers, and which
        part of it the query searched."""
        snapshot, files = self.view.snapshot, self.view.source_files
        what = "no row has this key" if key else "no row has a key in this range"
        told = {"rows": snapshot.rows, "source_files": files}
        members = {**({"key": self.shown(key)} if key else {}), **self.of_snapshot, "covered": told}
        if not self.where:
            covers = f"which covers {snapshot.rows} rows of {files} source files"
            return KeyNotFound(f"{what} in snapshot {snapshot.number}, {covers}", **members)
        asked = self.view.partitions_of(self._named, key.where if key else ())
        rows = sum(snapshot.partitions[partition] for partition in asked)
        named = cut(", ".join(f"{name}={' or '.join(values)}" for name, values in self.where.items()))
        return KeyNotFound(
            f"where {named} {what}; only that part of snapshot {snapshot.number}, {rows} of "
            f"{snapshot.rows} rows, was asked",
            **members,
            asked={"where": dict(self.where), "partitions": len(asked), "rows": rows},
        )


def answered(served: ServedIndex, options: Options, hold: Hold, work: Callable[[Question], T]) -> T:
    """The answer to a query. If a file of the newest snapshot changed or is gone, the query is repeated once, on a
    newer snapshot or on the same one if the file is back."""
    try:
        return work(Question(served, options, hold, may_move=True))
    except Moved:
        return work(Question(served, options, hold, may_move=False))


def too_large(error: BeyondBound) -> AnswerTooLarge:
    """The error of an exceeded limit, with the name of its setting."""
    return AnswerTooLarge(f"{error} (setting {'max_rows' if error.unit == 'rows' else 'max_answer_bytes'})")


def bounded(body: bytes, served: ServedIndex) -> bytes:
    """The bytes of an answer. AnswerTooLarge where they are more than the service sends."""
    if len(body) > served.max_answer_bytes:
        raise answer_too_large(len(body), served)
    return body


def answer_too_large(size: int, served: ServedIndex) -> AnswerTooLarge:
    """The error of an answer that has `size` bytes or more."""
    return AnswerTooLarge(
        f"the answer has {size:,} bytes or more, at most {served.max_answer_bytes:,} (setting max_answer_bytes); "
        "ask for fewer keys, fewer rows with _limit=, or fewer columns with _columns="
    )


def explanation(question: Question, key: ParsedKey | None = None, files: Sequence[str] = ()) -> Explain:
    """For a single key: its bucket, the costs of index and source, the steps in the order in which they began, and the
    source file of each row. For a batch: only the costs."""
    stats = question.stats
    index, source = stats.index, stats.source
    told = Explain(
        index=IndexCost(
            index.nodes, index.reads, index.bytes, index.filter_checks, index.filter_bytes, stats.lookup_us
        ),
        source=SourceCost(
            stats.source_files,
            source.reads,
            source.bytes,
            source.page_maps.reads,
            source.page_maps.bytes,
            stats.fetch_us,
        ),
    )
    if (added := read_through(question.view)) is not None:
        told.read_through = ReadThrough(len(added.source_files), sum(file.rows for file in added.source_files))
    if key is None:
        return told
    [told.bucket] = buckets_of_keys([key.stored], question.spec)
    partitions = question.spec.partitions
    hidden = set(partitions) - set(visible(question.place, partitions))  # no path may show their values
    roots = question.served.roots

    def path_shown(file: str) -> str:
        return shown_part(below_root(file, roots) if is_absolute(file) else file, hidden)

    steps = stats.trace.to_json() if stats.trace is not None else []
    shown = [step | {"file": path_shown(step["file"])} if "file" in step else step for step in steps]
    told.steps = cast(list[Step], shown)  # each kind of step has members of its own
    if files:
        told.files = [path_shown(file) for file in files]
    return told
