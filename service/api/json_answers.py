"""Answers in JSON. This code waits for files, so it runs in the threads of an index."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET

from gnomon.service import costs
from gnomon.service.api.explain import explanation
from gnomon.service.api.keys import key_given
from gnomon.service.api.negotiation import JSON
from gnomon.service.api.query import MENDABLE, Question, answer_too_large, answered, bounded, too_large
from gnomon.service.api.shapes import BatchResult, Problem, RowsAnswer
from gnomon.service.errors import BadRequest, encode, problem
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold
from gnomon.shadow import Answer, KeyTypeError
from gnomon.shadow.errors import BeyondBound
from gnomon.shadow.lookup import ParsedKey

# For a batch: keys of the first piece, most keys of a later piece, and about the bytes of a later piece.
FIRST_KEYS, MOST_KEYS, PIECE_BYTES = 250, 1000, 4 << 20


def rows_of(served: ServedIndex, key: object, options: Options, hold: Hold) -> bytes:
    """The answer to one key. KeyNotFound says what the snapshot covers."""

    def work(question: Question) -> bytes:
        wanted = question.read(key)
        question.trace()
        return question.answer(JSON, wanted, lambda: _found(question, wanted, key))

    body = answered(served, options, hold, work)
    hold.shrink_to(len(body))
    return body


def _found(question: Question, wanted: ParsedKey, key: object) -> tuple[bytes, int]:
    """The answer to a key, and the number of its rows."""
    [found] = question.ask(question.index.answer, question.query([key]))
    assert isinstance(found, Answer)  # a failure of the only key is raised
    costs.note(question.stats, 1, found.count)
    if not found.count:
        raise question.not_found(wanted)
    answer = RowsAnswer(question.shown(wanted), found.count, found.rows, **question.of_snapshot)
    if question.options.explain:
        answer.explain = explanation(question, wanted, found.files)
    with costs.encoding():
        return bounded(encode(answer), question.served), found.count


def has_rows(served: ServedIndex, key: object, options: Options, hold: Hold) -> None:
    """KeyNotFound unless the index has the key. The source is not read."""

    def work(question: Question) -> None:
        wanted = question.read(key)
        found = question.ask(question.index.contains, key, question.where, question.stats)
        costs.note(question.stats, 1, None)
        if not found:
            raise question.not_found(wanted)

    answered(served, options, hold, work)


class Batch:
    """The answer to a batch, made piece by piece: a result for each key, in the order of the keys. The result of a key
    that fails is its error. All results are from one snapshot. For one thread at a time."""

    def __init__(self, served: ServedIndex, keys: Sequence[Any], options: Options, instance: str) -> None:
        """`instance` is the path that the errors of keys name."""
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
        return b"".join([begin, b", ".join(results), end])

    def _results(self, question: Question, keys: Sequence[Any]) -> list[bytes]:
        """The results of some keys, as JSON."""
        results: list[BatchResult] = []
        places: list[int] = []
        for place, key in enumerate(keys):
            try:
                results.append(BatchResult(question.shown(question.read(key))))
                places.append(place)
            except (BadRequest, KeyTypeError) as error:
                given = key_given(key, question.spec, question.place)
                results.append(BatchResult(given, error=self._problem(error)))
        answers = _each(question, [keys[place] for place in places])
        for place, found in zip(places, answers, strict=True):
            if isinstance(found, Exception):
                results[place].error = self._problem(found)
            else:
                results[place].count, results[place].rows = found.count, found.rows
        with costs.encoding():
            encoded = self._bounded(results)
        question.rows += sum(len(one.rows) for one in answers if isinstance(one, Answer))
        question.keys += len(places)
        question.count += sum(one.count for one in answers if isinstance(one, Answer))
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
