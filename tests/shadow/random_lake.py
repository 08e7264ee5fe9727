"""A small source that changes at random between builds, and the expected answers of its index."""

import random
from pathlib import Path

import pyarrow as pa

from gnomon.shadow import open_index
from gnomon.shadow.maintenance import rebucket
from gnomon.shadow.storage import storage_at
from gnomon.sources import Pointer
from tests.shadow.make_index import index_source, write_source

KEYS = [None, *range(25)]


class RandomLake:
    """A source in up to four partitions and its index; each `step` adds, rewrites and removes files, and builds."""

    def __init__(self, root: Path, seed: int, buckets: int = 4, flat: bool = False, in_ranges: bool = False) -> None:
        self.source, self.index = root / "lake", root / "index"
        self.random = random.Random(seed)
        self.files: set[str] = set()
        self._buckets, self._flat, self._to_cut = buckets, flat, in_ranges

    def step(self) -> None:
        chance = self.random
        for path in sorted(self.files):
            if len(self.files) > 1 and chance.random() < 0.2:
                (self.source / path).unlink()
                self.files.remove(path)
        rewritten = [path for path in sorted(self.files) if chance.random() < 0.2]
        new = [f"p={chance.randrange(4)}/{chance.randrange(10**6)}.parquet" for _ in range(chance.randrange(1, 4))]
        for path in [*rewritten, *new]:
            write_source(self.source, {path: self._rows()})
            self.files.add(path)
        index_source(self.source, self.index, ["k"], self._buckets, include=["n"], flat=self._flat)
        if self._to_cut:
            rebucket(storage_at(str(self.index)), self._buckets, order="range")
            self._to_cut = False

    def _rows(self) -> pa.Table:
        """Up to 60 rows, sometimes none. The size differs each time, so that a rewritten file is noticed."""
        count = self.random.choice([0, 1, 5, 60])
        keys = [self.random.choice(KEYS) for _ in range(count)]
        pad = ["x" * self.random.randrange(1000)] * count
        return pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(count), pa.int32()), "pad": pad})


def answers(index: Path, snapshot: int | None = None) -> dict[object, list[Pointer]]:
    """The pointers of every key, in the order of the answers, without Bloom filters."""
    opened = open_index(str(index), snapshot, filters=False)
    return {key: opened.lookup((key,)) for key in [*KEYS, 99]}


def rows(index: Path) -> dict[object, list[dict[str, object]]]:
    """The rows of every key, with Bloom filters."""
    opened = open_index(str(index))
    return dict(zip(KEYS, opened.fetch_many([(key,) for key in KEYS]), strict=True))
