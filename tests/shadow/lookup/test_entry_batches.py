"""Arrow entries of an index: the entries of a file and the entries of keys agree."""

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key, order_key, stored_array, stored_values
from gnomon.shadow import DamagedIndexFile, OpenIndex
from gnomon.shadow.lookup.batch import MatchStats
from gnomon.shadow.lookup.entries import PARTITION, EntryColumn, entry_columns, matched_entries
from gnomon.shadow.lookup.ranges import Range
from gnomon.shadow.metadata.manifests import SegmentFile
from tests.opened import open_index
from tests.shadow.lookup.whole_matches import all_matches
from tests.shadow.make_index import index_source, write_source


@pytest.fixture(params=["flat", "by folder"])
def index(tmp_path: Path, request: pytest.FixtureRequest) -> OpenIndex:
    """Two segments, a dead file in the first, keys of two columns with nulls, NaN and a decimal included."""
    tables = {f"dt={day}/p.parquet": _table(day) for day in (1, 2, 3)}
    is_flat = request.param == "flat"
    write_source(tmp_path / "source", tables)
    index_source(tmp_path / "source", tmp_path / "index", ["a", "x"], 3, ["price", "at"], is_flat)
    write_source(tmp_path / "source", {"dt=2/p.parquet": _table(5)})
    index_source(tmp_path / "source", tmp_path / "index", ["a", "x"], 3, ["price", "at"], is_flat)
    return open_index(str(tmp_path / "index"))


def _table(salt: int) -> pa.Table:
    numbers = range(40)
    cents = pa.array([None if i % 5 == 0 else i * salt for i in numbers], pa.int32())
    return pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else f"k{i * salt % 9}" for i in numbers]),
            "x": pa.array([[math.nan, None, 0.5][i % 3] for i in numbers], pa.float64()),
            "price": cents.cast(pa.decimal128(30, 2)),
            "at": pa.array([i * 10**9 * salt for i in numbers], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


def all_entries(index: OpenIndex, columns: tuple[EntryColumn, ...], partitions: set[str]) -> list[pa.RecordBatch]:
    return [
        batch
        for segment in index.view.segments
        for file in segment.by_bucket.values()
        for batch in index.scan(SegmentFile(segment, file), columns, partitions, LookupStats())
    ]


def _rows(batches: list[pa.RecordBatch]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.to_pylist())


def test_scans_and_look_ups_give_the_same_entries(index: OpenIndex) -> None:
    spec, columns = index.spec, entry_columns(index.spec)
    scanned = all_entries(index, columns, set(index.view.partitions))
    assert sum(batch.num_rows for batch in scanned) == 3 * 40
    keys = {
        repr(key): key
        for batch in scanned
        for key in zip(*(stored_values(batch.column(i), kind) for i, kind in enumerate(spec.key_types)), strict=True)
    }
    wanted = list(keys.values())
    arrays = [stored_array([key[i] for key in wanted], kind) for i, kind in enumerate(spec.key_types)]
    asked = pa.RecordBatch.from_arrays(arrays, names=["a", "x"])
    looked_up = matched_entries(spec, asked, all_matches(index, asked, {}, MatchStats(), null_safe=True), columns)
    assert looked_up.schema == scanned[0].schema
    assert _rows([looked_up]) == _rows(scanned)


def test_only_the_partitions_and_columns_asked_for_come(index: OpenIndex) -> None:
    columns = tuple(column for column in entry_columns(index.spec) if column.source in ("dt", "price"))
    batches = all_entries(index, columns, {"dt=3"})
    assert next(batch.schema.names for batch in batches if batch.num_rows) == ["price", "dt"]
    assert sum(batch.num_rows for batch in batches) == 40
    assert {row["dt"] for batch in batches for row in batch.to_pylist()} == {"3"}


def test_an_entry_of_a_file_that_its_segment_does_not_cover_is_damage(index: OpenIndex) -> None:
    segment = index.view.segments[0]
    less = replace(segment, source_files=segment.source_files[1:], dead=frozenset())
    columns, partitions = entry_columns(index.spec), set(index.view.partitions)
    with pytest.raises(DamagedIndexFile, match=r"which its segment does not cover|not the index file of"):
        _ = [
            list(index.scan(SegmentFile(less, file), columns, partitions, LookupStats()))
            for file in segment.index_files
        ]


def test_partition_columns_come_in_their_type(index: OpenIndex) -> None:
    columns = entry_columns(index.spec)[:1]
    day = EntryColumn("dt", "dt", "bigint", PARTITION)
    batches = all_entries(index, (*columns, day), set(index.view.partitions))
    assert {batch.column(1).type for batch in batches} == {pa.int64()}
    assert {value for batch in batches for value in batch.column(1).to_pylist()} == {1, 2, 3}


def test_a_scan_of_ranges_has_the_entries_between_their_ends(index: OpenIndex) -> None:
    ranges = [Range(None, ("k1", None)), Range(("k2", 0.5), ("k4", None)), Range(("k7", math.nan), None)]
    columns = entry_columns(index.spec)
    scanned = compared = 0
    for segment in index.view.segments:
        for file in segment.index_files:
            place, partitions = SegmentFile(segment, file), index.view.partition_values
            everything = index.scan(place, columns, partitions, LookupStats())
            rows = [row for batch in everything for row in batch.to_pylist()]
            expected = [row for row in rows if any(_between(one, (row["a"], row["x"])) for one in ranges)]
            found = index.scan(place, columns, partitions, LookupStats(), ranges)
            assert str([row for batch in found for row in batch.to_pylist()]) == str(expected)
            scanned, compared = scanned + len(rows), compared + len(expected)
    assert scanned > compared > 20


def _between(one: Range, key: Key) -> bool:
    above = one.low is None or order_key(key) >= order_key(one.low)
    return above and (one.high is None or order_key(key) < order_key(one.high))
