"""Answers from memory alone, given where the event loop runs: no thread is needed for what cannot wait."""

from gnomon.service import costs
from gnomon.service.api.query import Question
from gnomon.service.api.responses import Sealed, sealed
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold

MOST_BYTES = 64 * 1024  # of an answer: more take long to compress


def answer_at_hand(
    served: ServedIndex, media_type: str, key: object, options: Options, encoding: str, hold: Hold
) -> Sealed | None:
    """The answer to one key, kept before; None where a thread has to find it. KeyNotFound where filters in memory deny
    the key. Errors of the query are as in a thread."""
    if options.snapshot is not None or options.explain or options.where or served.at_hand is None:
        return None
    question = Question(served, options, hold, may_move=False)
    wanted = question.read(key)
    body = question.at_hand(media_type, wanted, MOST_BYTES)
    if body is not None:
        return sealed(body, encoding, hold)
    if question.index.at_hand.denies(wanted, question.stats):
        costs.note(question.stats, 1, 0)
        raise question.not_found(wanted)
    return None
