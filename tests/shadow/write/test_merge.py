"""Entries of several index files are merged in the order of the format, and only the live ones."""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.btree.errors import DamagedIndexFile
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import adjacent, key_order, order_key, stable_order, stored_values
from gnomon.shadow.errors import IndexFileGone
from gnomon.shadow.metadata.manifests import Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.storage import storage_at
from gnomon.shadow.write import merge
from gnomon.shadow.write.merge import merged, sort_order
from tests.profiles import examples
from tests.shadow.make_index import Build, write_source

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=3),
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "int": st.integers(-3, 3),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.sampled_from([0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]),
    "double": st.floats().map(lambda x: 0.0 if x == 0 else x),
    "date": st.integers(-(10**6), 10**6),
    "timestamp": st.integers(-(10**15), 10**15),
    "binary": st.binary(max_size=3),
    "decimal(20,2)": st.decimals(min_value=-(10**15), max_value=10**15, places=2),
    "decimal(5,0)": st.decimals(min_value=-99999, max_value=99999, places=0),
}


@settings(max_examples=examples(300))
@given(data=st.data())
def test_rows_are_sorted_as_the_format_orders_keys_and_equal_ones_stay_in_order(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*[st.none() | VALUES[kind] for kind in types]), min_size=1, max_size=40))
    columns = [pa.array([row[i] for row in rows], key_type(kind).arrow) for i, kind in enumerate(types)]
    order = sort_order(columns)
    stored = [stored_values(column, kind) for column, kind in zip(columns, types, strict=True)]
    keys = list(zip(*stored, strict=True))
    assert order.tolist() == sorted(range(len(rows)), key=lambda row: order_key(keys[row]))
    _, ascending = adjacent([column.take(pa.array(order)) for column in columns])
    assert ascending.all()


def test_many_equal_keys_stay_in_order() -> None:
    numbers = [random.Random(1).randrange(5) for _ in range(50_000)]
    order = sort_order([pa.array(numbers), pa.array([0.5] * 50_000)])
    assert order.tolist() == sorted(range(50_000), key=numbers.__getitem__)


@pytest.mark.parametrize("spread", [0, 1, 5, 1 << 31, 1 << 50, 1 << 62, (1 << 64) - 1])
@pytest.mark.parametrize("rows", [0, 1, 3, 1500])
@pytest.mark.parametrize("distinct", [1, 30, 1 << 60])
def test_integers_of_any_spread_are_sorted_and_equal_ones_stay_in_order(spread: int, rows: int, distinct: int) -> None:
    dice = random.Random(spread + rows + distinct)
    least = -(1 << 63) if spread == (1 << 64) - 1 else -(spread // 3)
    among = [least, least + spread, *(dice.randint(least, least + spread) for _ in range(min(rows, distinct)))]
    numbers = np.array([dice.choice(among) for _ in range(rows)], np.int64)
    few = np.array([dice.randrange(3) for _ in range(rows)], np.int32)
    for columns in ([numbers], [few, numbers], [numbers, few], [few.astype(np.int8), few, numbers]):
        expected = sorted(range(rows), key=lambda row: [int(one[row]) for one in columns])
        assert stable_order(*columns).tolist() == expected
        sliced = [pa.array(np.append([column.dtype.type(7)] * 5, column)).slice(5) for column in columns]
        assert key_order(sliced).tolist() == expected


# -- merging -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Two files of one partition, with the keys 0 to 99 twice each."""
    keys = pa.table({"k": [i % 100 for i in range(200)], "bucket": [f"text {i}" for i in range(200)]})
    write_source(tmp_path / "lake", {"p=1/a.parquet": keys, "p=1/b.parquet": keys.slice(0, 100), "p=2/a.parquet": keys})
    return Build(tmp_path / "lake", tmp_path / "index", ["k"], buckets=4, include=["bucket"])


def parts_of(build: Build, partition: str = "p=1", dead: frozenset[int] = frozenset()) -> list[SegmentFile]:
    segment = Segment(build.segment, tuple(build.index_files), tuple(build.covered), dead)
    return [SegmentFile(segment, file) for file in build.index_files if file.partition == partition]


def entries(build: Build, parts: list[SegmentFile], buckets: int) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for folder, bucket, batches in merged(build.storage, build.spec, parts, replace(build.spec, buckets=buckets)):
        assert folder == parts[0].file.partition
        assert bucket not in found
        found[bucket] = [row for batch in batches for row in batch.to_pylist()]
    return found


def pointers(rows: list[dict[str, Any]]) -> list[tuple[int, str, int, str]]:
    return [(row["k"], row["data_filename"], row["data_offset"], row["bucket"]) for row in rows]


@pytest.mark.parametrize("buckets", [1, 2, 3, 4, 6, 8, 17])
def test_each_entry_goes_to_its_bucket_once_in_order(build: Build, buckets: int) -> None:
    found = entries(build, parts_of(build), buckets)
    for number, rows in found.items():
        assert pointers(rows) == sorted(pointers(rows), key=lambda row: row[:3])
        assert number in range(buckets)
    every = sorted(one for rows in found.values() for one in pointers(rows))
    expected = [(i % 100, "p=1/a.parquet", i, f"text {i}") for i in range(200)]
    expected += [(i, "p=1/b.parquet", i, f"text {i}") for i in range(100)]
    assert every == sorted(expected)


def test_entries_whose_source_file_is_dead_are_left_out(build: Build) -> None:
    found = entries(build, parts_of(build, dead=frozenset([0])), 4)
    assert {row["data_filename"] for rows in found.values() for row in rows} == {"p=1/b.parquet"}
    assert sum(map(len, found.values())) == 100
    assert entries(build, parts_of(build, dead=frozenset([0, 1])), 4) == {}


def test_large_parts_are_merged_a_few_buckets_at_a_time_with_the_same_result(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = entries(build, parts_of(build), 9)
    monkeypatch.setattr(merge, "BYTES_AT_ONCE", 1500)
    monkeypatch.setattr(merge, "BATCH_ROWS", 7)
    monkeypatch.setattr(merge, "BATCH_BYTES", 300)
    assert entries(build, parts_of(build), 9) == whole


def test_an_entry_of_another_bucket_is_not_carried_on(build: Build) -> None:
    one, *others = parts_of(build)
    wrong = SegmentFile(one.segment, replace(one.file, bucket=(one.file.bucket + 1) % 4))
    with pytest.raises(DamagedIndexFile, match="holds an entry of another bucket") as caught:
        entries(build, [wrong, *others], 4)
    assert caught.value.path == f"{build.storage.root}/{one.file.path}"


def test_an_entry_of_a_file_that_the_segment_does_not_cover_is_not_carried_on(build: Build) -> None:
    stranger = replace(parts_of(build)[0].segment, source_files=tuple(build.covered[1:]))
    with pytest.raises(DamagedIndexFile, match=r"an entry names p=1/a\.parquet, which its segment does not cover"):
        entries(build, [SegmentFile(stranger, part.file) for part in parts_of(build)], 4)


def test_a_part_that_is_gone_cut_or_changed_is_an_error(build: Build) -> None:
    file = parts_of(build)[0].file
    path = Path(build.storage.root, file.path)
    data = path.read_bytes()
    for broken, says in ((data[:-1], "expected .* bytes, found"), (data[:-1] + b"!", "expected CRC")):
        path.write_bytes(broken)
        with pytest.raises(DamagedIndexFile, match=says):
            entries(build, parts_of(build), 4)
    path.unlink()
    with pytest.raises(IndexFileGone, match=f"{file.path}: missing"):
        entries(build, parts_of(build), 4)


def test_a_path_that_is_dead_in_one_segment_and_counts_in_another_is_taken_from_the_other(build: Build) -> None:
    old = parts_of(build, dead=frozenset([0, 2]))
    root = storage_at(str(Path(build.storage.root).parent / "lake"))
    changed = {info.path: info for info in root.list()}["p=1/a.parquet"]
    entry = SourceFileEntry("p=1/a.parquet", "p=1", 200, changed.size, changed.mtime_ns, "")
    new = [SegmentFile(Segment("new", (), (entry,)), part.file) for part in parts_of(build, dead=frozenset([1]))]
    with pytest.raises(DamagedIndexFile, match=r"b\.parquet"):
        entries(build, [*old, *new], 4)
    new = [SegmentFile(Segment("new", (), (entry, build.covered[1]), frozenset([1])), part.file) for part in new]
    found = entries(build, [*new, *old], 4)
    names = [row["data_filename"] for rows in found.values() for row in rows]
    assert (names.count("p=1/a.parquet"), names.count("p=1/b.parquet")) == (200, 100)
