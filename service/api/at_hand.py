"""Answers that cannot wait, given where the event loop runs: they need no thread. A thread costs more than it does
there, since it takes turns with the event loop and all other threads."""

from collections.abc import Callable

from gnomon.service import costs
from gnomon.service.api.query import Question
from gnomon.service.api.responses import Sealed, sealed
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold, NeedsMemory
from gnomon.shadow.storage import WouldWait, without_waiting

MOST_READ = 512 * 1024  # bytes: more take long to unpack


def answer_at_hand(
    served: ServedIndex, media_type: str, key: object, options: Options, encoding: str, hold: Hold
) -> Sealed | None:
    """The answer to one key, kept before; None where a thread has to find it. KeyNotFound where filters in memory deny
    the key. Errors of the query are as in a thread."""
    if options.snapshot is not None or options.explain or options.where or served.at_hand is None:
        return None
    question = Question(served, options, hold, may_move=False)
    wanted = question.read(key)
    body = question.at_hand(media_type, wanted)
    if body is not None:
        return sealed(body, encoding, hold)
    if question.index.at_hand.denies(wanted, question.stats):
        costs.note(question.stats, 1, 0)
        raise question.not_found(wanted)
    return None


def answer_in_memory(
    served: ServedIndex, options: Options, work: Callable[[Hold], Sealed], hold: Hold
) -> Sealed | None:
    """The answer that `work` makes of index and source, if the system has the bytes that it reads in memory; None where
    it has not, or where the answer takes long to make."""
    if options.snapshot is not None or options.explain or served.at_hand is None:
        return None
    try:
        with without_waiting(MOST_READ):
            return work(hold)
    except (WouldWait, NeedsMemory):
        return None
