"""Answers to keys, in JSON and as Arrow IPC streams with rows in the types of the source.

The code waits for files, so it runs in the threads of an index. The event loop runs it only if it needs no wait: a
thread takes turns with the event loop and all other threads, so the same work costs more there. The metadata of a
stream's schema has the members that a JSON answer has besides its rows, as JSON text."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from msgspec import UNSET

from gnomon.service import costs
from gnomon.service.api.query import (
    MENDABLE,
    Moved,
    Question,
    answer_too_large,
    answered,
    bounded,
    explanation,
    key_given,
    too_large,
)
from gnomon.service.api.responses import ARROW, CSV, JSON, GzipStream, Sealed, sealed
from gnomon.service.api.shapes import BatchResult, Problem, RowsAnswer
from gnomon.service.errors import BadRequest, encode, problem
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold, NeedsMemory
from gnomon.shadow import Answer, KeyTypeError
from gnomon.shadow.errors import BeyondBound
from gnomon.shadow.fetch import number_column
from gnomon.shadow.lookup import ParsedKey
from gnomon.shadow.storage import WouldWait, without_waiting
from gnomon.shadow.values import csv_fields

MOST_READ = 512 * 1024  # bytes that the event loop reads for an answer: more take long to unpack
# For a batch: keys of the first piece, most keys of a later piece, and about the bytes of a later piece.
FIRST_KEYS, MOST_KEYS, PIECE_BYTES = 250, 1000, 4 << 20
SNAPSHOT, KEY, COUNT, COUNTS, EXPLAIN = (
    b"gnomon." + name for name in (b"snapshot", b"key", b"count", b"counts", b"explain")
)

ROWS = (
    "An Arrow IPC stream with the rows, in the types of the source. The schema's metadata has `gnomon.key`, "
    "`gnomon.count` and `gnomon.snapshot`, as JSON."
)
BATCH = (
    "An Arrow IPC stream with the rows of all keys, in the types of the source; the first column, `key_number`, is the "
    "place of the row's key in the batch, from 0. The schema's metadata has `gnomon.counts`, for each key the number "
    "of its rows, and `gnomon.snapshot`, as JSON. A key that fails fails the batch."
)


class WrongKey(BadRequest):
    """A key of a batch is invalid. `members`, for its problem, has the place of the key in the batch, from 0."""

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(f"key {place} of the batch: {error}")
        self.members = {"key_number": place}


class KeyAnswer:
    """The answer to one key. The query is read once, wherever the answer is then made. For one thread at a time."""

    def __init__(self, served: ServedIndex, media_type: str, key: object, options: Options, encoding: str) -> None:
        self._served, self._media_type, self._key, self._options = served, media_type, key, options
        self._encoding = encoding
        self._asked: tuple[Question, ParsedKey] | None = None

    def at_once(self, hold: Hold) -> Sealed | None:
        """The answer without a wait, for the event loop: a kept one, or a new one if the system has all bytes that it
        reads in memory. None where a thread has to make it. KeyNotFound where Bloom filters in memory exclude the key.
        An invalid query raises the same errors as in a thread."""
        options, served = self._options, self._served
        if options.snapshot is not None or options.explain or served.at_hand is None:
            return None
        if not options.where:
            question, wanted = self._read(hold)
            body = question.at_hand(self._media_type, wanted)
            if body is not None:
                return sealed(body, self._encoding, hold)
            if question.index.at_hand.denies(wanted, question.stats):
                costs.note(question.stats, 1, 0)
                raise question.not_found(wanted)
        try:
            with without_waiting(MOST_READ):
                return self.made(hold)
        except (WouldWait, NeedsMemory):
            return None

    def made(self, hold: Hold) -> Sealed:
        """The answer, for a thread. KeyNotFound says what the snapshot covers."""
        try:
            body = self._body(*self._read(hold))
        except Moved:
            self._asked = None
            body = self._body(*self._read(hold, may_move=False))
        return sealed(body, self._encoding, hold)

    def _read(self, hold: Hold, may_move: bool = True) -> tuple[Question, ParsedKey]:
        """The query, and its key in the form of the index."""
        if self._asked is None:
            question = Question(self._served, self._options, hold, may_move)
            self._asked = question, question.read(self._key)
        else:
            self._asked[0].again(hold)
        return self._asked

    def _body(self, question: Question, wanted: ParsedKey) -> bytes:
        question.trace()
        found = {JSON: self._in_json, ARROW: self._in_arrow, CSV: self._in_csv}[self._media_type]
        return question.answer(self._media_type, wanted, lambda: found(question, wanted))

    def _found(self, question: Question, wanted: ParsedKey) -> Answer:
        """The rows. KeyNotFound where there are none."""
        [found] = question.ask(question.index.answer, question.query([self._key]))
        assert isinstance(found, Answer)  # a failure of the only key is raised
        costs.note(question.stats, 1, found.count)
        if not found.count:
            raise question.not_found(wanted)
        return found

    def _in_csv(self, question: Question, wanted: ParsedKey) -> tuple[bytes, int]:
        """The answer as CSV, and the number of its rows."""
        found = self._found(question, wanted)
        return csv_table(question, found.rows), found.count

    def _in_json(self, question: Question, wanted: ParsedKey) -> tuple[bytes, int]:
        """The answer in JSON, and the number of its rows."""
        found = self._found(question, wanted)
        answer = RowsAnswer(question.shown(wanted), found.count, found.rows, **question.of_snapshot)
        if question.options.explain:
            answer.explain = explanation(question, wanted, found.files)
        with costs.encoding():
            return bounded(encode(answer), question.served), found.count

    def _in_arrow(self, question: Question, wanted: ParsedKey) -> tuple[bytes, int]:
        """The answer as a stream, and the number of its rows."""
        table = _table(question, [self._key])
        [count] = _counts(table)
        if not count:
            raise question.not_found(wanted)
        members = {KEY: question.shown(wanted), COUNT: count}
        return stream(question, table.drop_columns([table.column_names[0]]), members, wanted), count


def has_rows(served: ServedIndex, key: object, options: Options, hold: Hold) -> None:
    """KeyNotFound unless the index has the key. The source is not read."""

    def work(question: Question) -> None:
        wanted = question.read(key)
        found = question.ask(question.index.contains, key, question.where, question.stats)
        costs.note(question.stats, 1, None)
        if not found:
            raise question.not_found(wanted)

    answered(served, options, hold, work)


class BatchPieces:
    """The answer to a batch, made piece by piece: a result for each key, in the order of the keys. The result of a key
    that fails is its error. All results are from one snapshot. For one thread at a time."""

    def __init__(
        self, served: ServedIndex, keys: Sequence[Any], options: Options, instance: str, is_gzip: bool = False
    ) -> None:
        """`instance` is the path that the errors of keys name. With `is_gzip`, the pieces are one compressed stream."""
        self._gzip = GzipStream() if is_gzip else None
        self._served, self._keys, self._options, self._instance = served, keys, options, instance
        self._question: Question | None = None
        self._done = 0  # keys
        self._bytes = 0  # of their results

    @property
    def is_whole(self) -> bool:
        """Whether the last piece was given."""
        return self._question is not None and self._done == len(self._keys)

    def piece(self, hold: Hold) -> bytes:
        """The next piece. An error of the first piece is the answer to the whole batch, and only the first piece may
        move to a newer snapshot. After an error the call can be repeated."""
        keys = self._keys[self._done : self._done + self._step]
        if self._question is None:
            self._question, results = answered(
                self._served, self._options, hold, lambda question: (question, self._results(question, keys))
            )
            self._question.may_move = False
        else:
            self._question.hold = hold
            results = self._results(self._question, keys)
        body = self._joined(results)
        hold.shrink_to(len(body))
        return body

    def rest(self, error: Exception) -> bytes:
        """The last piece of a batch that ends with an error, which is the result of all remaining keys."""
        assert self._question is not None
        keys = self._keys[self._done :]
        told = encode(self._problem(error))  # once: there may be thousands of keys
        given = (encode(key_given(key, self._question.spec, self._question.place)) for key in keys)
        return self._joined([b'{"key": %s, "error": %s}' % (key, told) for key in given])

    def _problem(self, error: Exception) -> Problem:
        return cast(Problem, problem(error, self._instance, lambda: self._served.roots))  # with members of its kind

    @property
    def _step(self) -> int:
        """How many keys to look up together."""
        if not self._done:
            return FIRST_KEYS
        return max(1, min(MOST_KEYS, PIECE_BYTES * self._done // max(self._bytes, 1)))

    def _joined(self, results: Sequence[bytes]) -> bytes:
        """The piece of some results."""
        question = self._question
        assert question is not None
        begin = b", " if self._done else b'{"results": ['
        self._done += len(results)
        self._bytes += sum(map(len, results))
        question.bytes = self._bytes
        end = b""
        if self.is_whole:
            members: dict[str, Any] = question.of_snapshot
            if self._options.explain:
                members["explain"] = explanation(question)
            end = b"], " + encode(members)[1:]
        piece = b"".join([begin, b", ".join(results), end])
        return piece if self._gzip is None else self._gzip.add(piece, self.is_whole)

    def _results(self, question: Question, keys: Sequence[Any]) -> list[bytes]:
        """The results of some keys, as JSON."""
        results: list[BatchResult] = []
        readable: list[int] = []
        for place, key in enumerate(keys):
            try:
                results.append(BatchResult(question.shown(question.read(key))))
                readable.append(place)
            except (BadRequest, KeyTypeError) as error:
                shown_key = key_given(key, question.spec, question.place)
                results.append(BatchResult(shown_key, error=self._problem(error)))
        answers = _each(question, [keys[place] for place in readable])
        for place, answer in zip(readable, answers, strict=True):
            if isinstance(answer, Exception):
                results[place].error = self._problem(answer)
            else:
                results[place].count, results[place].rows = answer.count, answer.rows
        with costs.encoding():
            encoded = self._bounded(results)
        question.rows += sum(len(answered.rows) for answered in answers if isinstance(answered, Answer))
        question.keys += len(readable)
        question.count += sum(answered.count for answered in answers if isinstance(answered, Answer))
        costs.note(question.stats, question.keys, question.count)
        return encoded

    def _bounded(self, results: Sequence[BatchResult]) -> list[bytes]:
        """The results as JSON. AnswerTooLarge if the first piece is larger than an answer may be. In later pieces, a
        key whose rows make the answer too large gets that error."""
        encoded, size, most = [], self._bytes, self._served.max_answer_bytes
        for result in results:
            text = encode(result)
            if size + len(text) > most and result.rows is not UNSET:
                error = answer_too_large(size + len(text), self._served)
                if not self._done:
                    raise error
                text = encode(BatchResult(result.key, error=self._problem(error)))
            size += len(text)
            encoded.append(text)
        return encoded


def _each(question: Question, keys: Sequence[object]) -> list[Answer | Exception]:
    """The rows of each key, or its error."""
    answers = question.ask(question.index.answer, question.query(keys, each=True))
    mendable = next((found for found in answers if isinstance(found, MENDABLE)), None)
    if mendable is not None:  # looks for a newer snapshot once, even if many keys fail
        question.mend(mendable)
    return [too_large(found) if isinstance(found, BeyondBound) else found for found in answers]


def rows_of_each(served: ServedIndex, media_type: str, keys: Sequence[Any], options: Options, hold: Hold) -> bytes:
    """The rows of a batch as one table, in Arrow or CSV, in the order of its keys; the first column is the place of the
    key. If one key fails, the batch fails, since a table of rows cannot contain an error."""

    def work(question: Question) -> bytes:
        for place, key in enumerate(keys):
            try:
                question.read(key)
            except (BadRequest, KeyTypeError) as error:
                raise WrongKey(place, error) from None
        if media_type == CSV:
            answers = question.ask(question.index.answer, question.query(keys))
            found = [answer for answer in answers if isinstance(answer, Answer)]  # all: a failure is raised
            costs.note(question.stats, len(keys), sum(answer.count for answer in found))
            number = number_column(question.columns)
            return csv_table(question, [{number: n, **row} for n, one in enumerate(found) for row in one.rows], number)
        table = _table(question, keys)
        return stream(question, table, {COUNTS: _counts(table)})

    body = answered(served, options, hold, work)
    hold.shrink_to(len(body))
    return body


def _table(question: Question, keys: Sequence[object]) -> pa.Table:
    table = question.ask(question.index.table, question.query(keys))
    costs.note(question.stats, len(keys), sum(_counts(table)))
    return table


def _counts(table: pa.Table) -> list[int]:
    """The number of rows of each key, including rows beyond a limit."""
    counts: list[int] = json.loads(table.schema.metadata[COUNTS])
    return counts


def csv_table(question: Question, rows: Iterable[Mapping[str, Any]], *before: str) -> bytes:
    """The rows as CSV; `before` are columns before those of the query. BadRequest where an explanation is asked for,
    which CSV has no place for."""
    if question.options.explain:
        raise BadRequest("_explain: expected JSON or Arrow; CSV has no place for it")
    columns, out = [*before, *question.columns], io.StringIO()
    with costs.encoding():
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows(csv_fields(row, columns) for row in rows)
        return bounded(out.getvalue().encode(), question.served)


def stream(question: Question, table: pa.Table, told: dict[bytes, Any], key: ParsedKey | None = None) -> bytes:
    """The table as one Arrow IPC stream, with the other members of the answer."""
    told = {SNAPSHOT: question.view.snapshot.number, **told}
    if question.options.explain:
        told = {**told, EXPLAIN: explanation(question, key)}
    with costs.encoding():
        table = table.combine_chunks().replace_schema_metadata({name: encode(value) for name, value in told.items()})
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return bounded(out.getvalue().to_pybytes(), question.served)
