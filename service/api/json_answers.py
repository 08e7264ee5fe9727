"""Keys and options to answers in JSON. All of it blocks on files, so it runs in the service's threads."""

from collections.abc import Sequence
from typing import Any

from gnomon.service import costs
from gnomon.service.api.explain import explanation
from gnomon.service.api.keys import key_given
from gnomon.service.api.query import MENDABLE, Question, answered, bounded, too_large
from gnomon.service.errors import BadRequest, encode, problem
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.shadow import Answer, KeyTypeError
from gnomon.shadow.errors import BeyondBound


def rows_of(served: ServedIndex, key: object, options: Options) -> bytes:
    """The answer to one key. KeyNotFound says what the snapshot covers."""

    def work(question: Question) -> bytes:
        wanted = question.read(key)
        question.trace()
        index, columns, stats = question.index, question.columns, question.stats
        [found] = question.ask(index.answer_many, [key], columns, stats=stats, **question.bounds)
        costs.note(stats, 1, found.count)
        if not found.count:
            raise question.not_found(wanted)
        answer = {
            "key": question.shown(wanted),
            "count": found.count,
            "rows": found.rows,
            "snapshot": question.view.snapshot.number,
        }
        if options.explain:
            answer["explain"] = explanation(question, wanted, found.files)
        with costs.encoding():
            return bounded(encode(answer), served)

    return answered(served, options, work)


def has_rows(served: ServedIndex, key: object, options: Options) -> None:
    """KeyNotFound unless the index, without a look at the source, has the key."""

    def work(question: Question) -> None:
        wanted = question.read(key)
        found = question.ask(question.index.contains, key, stats=question.stats)
        costs.note(question.stats, 1, None)
        if not found:
            raise question.not_found(wanted)

    answered(served, options, work)


def rows_of_each(served: ServedIndex, keys: Sequence[Any], options: Options, instance: str) -> bytes:
    """The answer to a batch: a result for each key, in the order asked; a key that fails carries its own error."""

    def work(question: Question) -> bytes:
        results: list[dict[str, Any]] = []
        places: list[int] = []
        for place, key in enumerate(keys):
            try:
                results.append({"key": question.shown(question.read(key))})
                places.append(place)
            except (BadRequest, KeyTypeError) as error:
                given = key_given(key, question.spec, question.place)
                results.append({"key": given, "error": problem(error, instance, served.roots)})
        answers = _each(question, [keys[place] for place in places])
        costs.note(question.stats, len(places), sum(one.count for one in answers if isinstance(one, Answer)))
        for place, found in zip(places, answers, strict=True):
            if isinstance(found, Exception):
                results[place]["error"] = problem(found, instance, served.roots)
            else:
                results[place] |= {"count": found.count, "rows": found.rows}
        answer: dict[str, Any] = {"results": results, "snapshot": question.view.snapshot.number}
        if options.explain:
            answer["explain"] = explanation(question)
        with costs.encoding():
            return bounded(encode(answer), served)

    return answered(served, options, work)


def _each(question: Question, keys: Sequence[object]) -> list[Answer | Exception]:
    """The rows of each key, or why they cannot be had; all from one snapshot."""
    index, columns, stats = question.index, question.columns, question.stats
    answers = question.ask(index.answer_each, keys, columns, stats=stats, **question.bounds)
    mendable = next((found for found in answers if isinstance(found, MENDABLE)), None)
    if mendable is not None:  # one look for a newer snapshot, however many keys fail
        question.mend(mendable)
    return [too_large(found) if isinstance(found, BeyondBound) else found for found in answers]
