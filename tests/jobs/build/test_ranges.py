"""Ranges of keys that grow with the keys: no bucket grows without end, and no row is lost."""

import importlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.jobs.build import LocalEngine, build
from gnomon.shadow import OpenIndex
from gnomon.shadow.maintenance import compact
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.opened import open_index
from tests.shadow.make_index import write_source

job = importlib.import_module("gnomon.jobs.build.job")  # in the package, `build` is the function
ranges = importlib.import_module("gnomon.jobs.build.ranges")
SHARE = 100


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "ENTRIES_PER_BUCKET", SHARE)


def built(root: Path, flat: bool = False) -> OpenIndex:
    build(LocalEngine(), str(root / "lake"), str(root / "index"), ["k"], buckets=4, order="range", flat=flat)
    return open_index(str(root / "index"))


def entries(index: OpenIndex) -> Counter[int]:
    counts: Counter[int] = Counter()
    for segment in index.view.segments:
        for file in segment.index_files:
            counts[file.bucket] += file.entries
    return counts


KEYS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda number: number,
    "texts": lambda number: f"order-{number:09d}",
    "long texts": lambda number: f"{'x' * 150}{number:09d}",
    "moments": lambda number: f"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}",
}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("kind", KEYS)
def test_a_build_adds_ranges_for_keys_that_grow(tmp_path: Path, kind: str, flat: bool) -> None:
    made, chance = KEYS[kind], random.Random(kind)
    numbers: list[int] = []
    for night in range(8):
        new = range(night * 250, night * 250 + chance.choice([40, 250]))
        numbers += new
        table = pa.table({"k": [made(number) for number in new]})
        write_source(tmp_path / "lake", {f"p={night % 2}/{night}.parquet" if flat else f"{night}.parquet": table})
        index = built(tmp_path, flat)
        assert [row["k"] for row in index.range()] == sorted(made(number) for number in numbers)
        assert all(len(found) == 1 for found in index.fetch_many([made(number) for number in numbers[::7]]))
        assert verify(storage_at(str(tmp_path / "index"))).faults == []
    assert index.spec.buckets > 8
    assert max(entries(index).values()) <= 4 * SHARE
    compact(storage_at(str(tmp_path / "index")))
    assert [row["k"] for row in open_index(str(tmp_path / "index")).range()] == sorted(map(made, numbers))


def test_keys_that_do_not_grow_keep_their_ranges(tmp_path: Path) -> None:
    chance = random.Random(3)
    for night in range(5):
        keys = [f"{chance.randrange(10**6):06d}" for _ in range(300)]
        write_source(tmp_path / "lake", {f"{night}.parquet": pa.table({"k": keys})})
        assert built(tmp_path).spec.buckets == 4


@pytest.mark.parametrize("flat", [False, True])
def test_ranges_are_not_added_over_keys_that_another_build_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool
) -> None:
    """The other one puts its keys, which are greater than all, into the last range that it knows."""
    write_source(tmp_path / "lake", {"p=0/a.parquet": pa.table({"k": range(400)})})
    built(tmp_path, flat)
    write_source(tmp_path / "lake", {"p=0/b.parquet": pa.table({"k": range(1000, 1600)})})
    publish, others = job.publish_build, [True]

    def after_another(*args: Any) -> Any:
        if others.pop() if others else False:
            monkeypatch.setattr(ranges, "ENTRIES_PER_BUCKET", 10**9)
            write_source(tmp_path / "lake", {"p=0/c.parquet": pa.table({"k": range(1200, 1210)})})
            (tmp_path / "lake/p=0/b.parquet").rename(tmp_path / "b")
            built(tmp_path, flat)
            (tmp_path / "b").rename(tmp_path / "lake/p=0/b.parquet")
            monkeypatch.setattr(ranges, "ENTRIES_PER_BUCKET", SHARE)
        return publish(*args)

    monkeypatch.setattr(job, "publish_build", after_another)
    index = built(tmp_path, flat)
    assert others == []
    assert index.spec.buckets > 4
    assert verify(storage_at(str(tmp_path / "index"))).faults == []
    found = [row["k"] for row in index.range()]
    assert found == sorted([*range(400), *range(1000, 1600), *range(1200, 1210)])
    assert [len(index.fetch(key)) for key in (1205, 1300)] == [2, 1]
