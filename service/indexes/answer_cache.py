"""A cache of whole answers to single keys. It gives an answer only while the source files of its rows are unchanged."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from gnomon.shadow import Index
from gnomon.shadow.at_hand import AtHand
from gnomon.shadow.storage import ByteCache, CacheCounts, Identity

OBJECT_BYTES = 1000  # memory of an answer besides its bytes
LARGEST_SHARE = 16  # an answer takes at most one part in sixteen of the cache


@dataclass(frozen=True)
class KeptAnswer:
    """The bytes of an answer, the number of rows that it counts, and the source files they come from, each with the
    identity that it had."""

    body: bytes
    count: int
    files: Mapping[str, Identity]

    @property
    def cache_bytes(self) -> int:
        """The memory of the answer."""
        return OBJECT_BYTES + len(self.body) + sum(map(len, self.files))


class AnswerCache:
    """Answers by a key that has the query and its snapshot. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._largest = limit // LARGEST_SHARE
        self._answers: ByteCache[KeptAnswer] = ByteCache(limit)

    @property
    def counts(self) -> CacheCounts:
        return self._answers.counts

    def get(self, asked: Hashable, index: Index) -> KeptAnswer | None:
        """The answer that the index would give now. StorageError where its source files cannot be looked at."""
        kept = self._answers.get(asked)
        if kept is None or index.is_unchanged(kept.files):
            return kept
        self._answers.discard(asked)
        return None

    def at_hand(self, asked: Hashable, index: AtHand, most_bytes: int) -> KeptAnswer | None:
        """A cached answer of at most `most_bytes` bytes, if memory alone shows that the index would give it now. None
        is not counted as a miss, since the caller then uses `get`."""
        kept = self._answers.peek(asked)
        if kept is None or len(kept.body) > most_bytes or not index.are_unchanged(kept.files):
            return None
        return self._answers.get(asked)

    def put(self, asked: Hashable, answer: KeptAnswer) -> None:
        """Keep an answer, unless it is large for the cache."""
        if answer.cache_bytes <= self._largest:
            self._answers.put(asked, answer)
