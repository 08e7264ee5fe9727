"""Answers that are made in the event loop, since they need no wait. In a thread the same work costs more, since the
thread takes turns with the event loop and all other threads."""

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
    """The cached answer to one key; None where a thread has to make the answer. KeyNotFound where Bloom filters in
    memory exclude the key. An invalid query raises the same errors as in a thread."""
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
    """The answer that `work` makes, if the system has all bytes that it reads in memory; None otherwise, and for an
    answer that takes long to make."""
    if options.snapshot is not None or options.explain or served.at_hand is None:
        return None
    try:
        with without_waiting(MOST_READ):
            return work(hold)
    except (WouldWait, NeedsMemory):
        return None
