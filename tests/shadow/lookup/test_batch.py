"""A look-up of many keys finds the entries that `find` finds for each, in each way to search index files."""

import logging
import math
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from gnomon.btree import BTreeReader
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import stored_array, stored_values
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import DamagedIndexFile, IndexFileGone, PartitionNotFound
from gnomon.shadow.lookup import batch as match_module
from gnomon.shadow.lookup.batch import MatchStats
from gnomon.shadow.lookup.plan import ParsedKey
from gnomon.shadow.maintenance import compaction as tiered_merge
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.shadow.lookup.whole_matches import all_matches
from tests.shadow.make_index import index_source, write_source

Key = tuple[Any, ...]
WAYS = {"key by key": (0.0, 1e9), "leaf by leaf": (1e9, 0.0), "as measured": (5.0, 10.0)}


def rows(seed: int, count: int, key: str) -> pa.Table:
    """Keys that repeat within a file and across files, some of them null."""
    rnd = random.Random(seed)
    numbers = [None if rnd.random() < 0.1 else rnd.randrange(60) for _ in range(count)]
    keys = numbers if key == "bigint" else [n if n is None else f"https://é.example/{n}" for n in numbers]
    return pa.table(
        {
            "k": pa.array(keys, key_type(key).arrow),
            "b": pa.array([None if i % 5 == 0 else i % 3 for i in range(count)], pa.int16()),
            "score": pa.array([None if i % 4 == 0 else i / 8 for i in range(count)]),
            "day": pa.array(range(count), pa.int32()).view(pa.date32()),
        }
    )


def made(
    root: Path, keys: Sequence[str], key: str = "string", flat: bool = False, include: Sequence[str] = ()
) -> OpenIndex:
    """An index of three segments, the first two with dead files, over partitions of which one is null."""
    source = root / "source"
    parts = ["dt=1/a.parquet", "dt=1/b.parquet", "dt=2/a.parquet", "dt=__HIVE_DEFAULT_PARTITION__/a.parquet"]
    write_source(source, {path: rows(i, 150, key) for i, path in enumerate(parts)})
    with patch.object(tiered_merge, "FACTOR", 0):  # the segments stay apart
        index_source(source, root / "index", keys, 3, include, flat)
        write_source(source, {"dt=2/b.parquet": rows(11, 90, key), "dt=3/a.parquet": rows(12, 9, key)})
        index_source(source, root / "index", keys, 3, include, flat)
        os.unlink(source / "dt=1/a.parquet")
        os.unlink(source / "dt=3/a.parquet")
        write_source(source, {"dt=1/c.parquet": rows(13, 200, key)})
        index_source(source, root / "index", keys, 3, include, flat)
    index = open_index(str(root / "index"))
    assert sum(len(segment.dead) for segment in index.view.segments) == 2
    return index


def asked(index: OpenIndex, count: int, seed: int) -> list[Key]:
    rnd = random.Random(seed)
    values = {
        "string": [None, "", *(f"https://é.example/{i}" for i in range(70))],
        "bigint": [None, -1, *range(70)],
        "smallint": [None, 0, 1, 2, 3],
    }
    return [tuple(rnd.choice(values[kind]) for kind in index.spec.key_types) for _ in range(count)]


def batch(index: OpenIndex, keys: Sequence[Key]) -> pa.RecordBatch:
    types = index.spec.key_types
    names = [key.name for key in index.spec.stored_keys]
    return pa.RecordBatch.from_arrays([stored_array([k[i] for k in keys], kind) for i, kind in enumerate(types)], names)


def found(index: OpenIndex, keys: Sequence[Key], places: Sequence[str | None] | None) -> list[list[Key]]:
    """The result of `find` for each key, as rows: included columns, partition column, pointer."""
    wanted = [ParsedKey(key, () if places is None else (("dt", places[i]),)) for i, key in enumerate(keys)]
    values = index.view.partition_values
    return [
        [(*hit.included, values[hit.file.partition]["dt"], *hit.pointer) for hit in hits]
        for hits in index.find(wanted, MatchStats())
    ]


def matched(
    index: OpenIndex, keys: Sequence[Key], places: Sequence[str | None] | None, null_safe: bool
) -> list[list[Key]]:
    stats = MatchStats()
    within: Mapping[str, pa.Array] = {} if places is None else {"dt": pa.array(places, pa.string())}
    matches = all_matches(index, batch(index, keys), within, stats, null_safe)
    types = [*(column.type for column in index.spec.include), "string", "string", "bigint", "int", "int"]
    names = [*(column.name for column in index.spec.include), "dt", "data_filename"]
    assert not len(matches.rows) or matches.entries.schema.names[: len(names)] == names
    columns = [
        stored_values(column, kind)
        for column, kind in zip(matches.entries.columns, types, strict=bool(len(matches.rows)))
    ]
    numbers = matches.rows.to_pylist()
    assert numbers == sorted(numbers)
    out: list[list[Key]] = [[] for _ in keys]
    for number, entry in zip(numbers, zip(*columns, strict=True), strict=True):
        out[number].append(entry)
    held = index.holds(batch(index, keys), within, stats).to_pylist()
    if null_safe:
        assert held == [bool(entries) for entries in out]
    return out


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    each, leaf = WAYS[request.param]
    monkeypatch.setattr(match_module, "EACH_US", each)
    monkeypatch.setattr(match_module, "LEAF_US", leaf)
    return str(request.param)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OpenIndex]:
    root = tmp_path_factory.mktemp("match")
    return {
        "text": made(root / "text", ["k"], include=["score", "b", "day"]),
        "numbers": made(root / "numbers", ["k"], "bigint", include=["day"]),
        "flat": made(root / "flat", ["k"], flat=True, include=["score"]),
        "pairs": made(root / "pairs", ["k", "b"], include=["score"]),
    }


@pytest.mark.parametrize("name", ["text", "numbers", "flat", "pairs"])
@pytest.mark.parametrize("narrowed", [False, True])
def test_a_match_finds_what_find_finds_in_its_order(
    indexes: dict[str, OpenIndex], way: str, name: str, narrowed: bool
) -> None:
    index = indexes[name]
    for seed, count in enumerate((1, 7, 300)):
        keys = asked(index, count, seed)
        places = [random.Random(i).choice([None, "1", "2", "3", "9", ""]) for i in range(count)] if narrowed else None
        expected = found(index, keys, places)
        assert matched(index, keys, places, null_safe=True) == expected
        nulls = [None in key or (places is not None and places[i] is None) for i, key in enumerate(keys)]
        without = [[] if null else hits for hits, null in zip(expected, nulls, strict=True)]
        assert matched(index, keys, places, null_safe=False) == without
    assert any(expected)


@pytest.mark.parametrize("name", ["text", "flat"])
def test_pieces_are_small_and_together_the_match(
    indexes: dict[str, OpenIndex], way: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexes[name]
    keys = batch(index, asked(index, 200, 5))
    whole = all_matches(index, keys, {}, MatchStats(), null_safe=True)
    monkeypatch.setattr(match_module, "MOST_HITS", 40)
    pieces = list(index.match_pieces(keys, {}, MatchStats(), null_safe=True))
    assert max(len(piece.rows) for piece in pieces) <= 40 < len(whole.rows) / 10
    expected = Counter(zip(whole.rows.to_pylist(), map(repr, whole.entries.to_pylist()), strict=True))
    found = [
        (row, repr(entry))
        for piece in pieces
        for row, entry in zip(piece.rows.to_pylist(), piece.entries.to_pylist(), strict=True)
    ]
    assert Counter(found) == expected


@pytest.mark.parametrize("name", ["text", "numbers", "flat", "pairs"])
@pytest.mark.parametrize("narrowed", [False, True])
@pytest.mark.parametrize("ahead", [1, 1 << 20])
def test_several_threads_find_the_same_in_the_same_order_at_the_same_cost(
    indexes: dict[str, OpenIndex], name: str, narrowed: bool, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a thread holds one piece at most, and the others are made by the caller."""
    monkeypatch.setattr(match_module, "WORTH_KEYS", 1)
    monkeypatch.setattr(match_module, "HELD_BYTES", ahead)
    monkeypatch.setattr(match_module, "MOST_HITS", 40)
    location, keys = indexes[name].location, batch(indexes[name], asked(indexes[name], 300, 5))
    rnd = random.Random(1)
    within = {"dt": pa.array([rnd.choice([None, "1", "2", "9"]) for _ in range(300)])} if narrowed else {}

    def run(threads: int) -> tuple[list[Any], list[bool], MatchStats]:
        index, stats = open_index(location), MatchStats()
        pieces = list(index.match_pieces(keys, within, stats, True, threads))
        held = index.holds(keys, within, stats, threads).to_pylist()
        return [(one.rows.to_pylist(), one.entries.to_pylist()) for one in pieces], held, stats

    by_one = run(1)
    assert len(by_one[0]) > 3
    assert run(2) == by_one
    assert run(100) == by_one


def test_several_threads_raise_the_error_of_the_first_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a caller may stop amid the pieces."""
    monkeypatch.setattr(match_module, "WORTH_KEYS", 1)
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": range(2000)})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 6)
    keys = pa.record_batch({"k": range(2000)})
    index = open_index(str(tmp_path / "index"))
    pieces = index.match_pieces(keys, {}, MatchStats(), threads=4)
    next(pieces)
    pieces.close()
    files = sorted(index.view.segments[0].index_files, key=lambda one: one.bucket)
    for damaged in (4, 2):
        (tmp_path / "index" / files[damaged].path).unlink()
        for threads in (1, 4):
            index = open_index(str(tmp_path / "index"))
            for run in (
                lambda index, n: list(index.match_pieces(keys, {}, MatchStats(), threads=n)),
                lambda index, n: index.holds(keys, {}, MatchStats(), n),
            ):
                with pytest.raises(IndexFileGone, match=re.escape(files[damaged].path)):
                    run(index, threads)


def test_a_key_of_very_many_entries_is_not_held_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [i if i < 20 else 7 for i in range(20_000)]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    index, keys = open_index(str(tmp_path / "index")), pa.record_batch({"k": [3, 7, 11, 30]})
    monkeypatch.setattr(match_module, "EACH_US", 0.0)
    monkeypatch.setattr(match_module, "EACH_LEAF_US", 0.0)
    whole = all_matches(index, keys, {}, stats := MatchStats())
    assert (stats.files_by_key, stats.files_by_leaf) == (1, 0)
    monkeypatch.setattr(match_module, "MOST_HITS", 500)
    held: list[int] = []
    each = BTreeReader.match_each

    def counted(*args: Any, **kwargs: Any) -> Any:
        found = each(*args, **kwargs)
        held.append(len(found.keys))
        return found

    monkeypatch.setattr(BTreeReader, "match_each", counted)
    assert all_matches(index, keys, {}, MatchStats()).entries == whole.entries
    assert whole.entries["data_offset"].to_pylist() == [3, 7, *range(20, 20_000), 11]
    assert held == []  # dropped, for all keys of the look-up


def test_few_keys_are_searched_key_by_key_and_of_a_remote_store_by_the_fewest_reads() -> None:
    entry = SimpleNamespace(entries=500_000, size=4 << 20)
    local = SimpleNamespace(upper_bytes=20_000, has_inner_levels=True, waits=False)
    remote = SimpleNamespace(upper_bytes=20_000, has_inner_levels=True, waits=True)
    is_each = {}
    for name, tree in (("local", local), ("remote", remote)):
        for keys in (1, 10, 50, 1000):
            each, by_leaf = match_module.costs_us(tree, entry, keys)  # type: ignore[arg-type]
            is_each[name, keys] = each < by_leaf
    assert [keys for (name, keys), each in is_each.items() if name == "local" and each] == [1, 10, 50]
    assert [keys for (name, keys), each in is_each.items() if name == "remote" and each] == [1, 10]


def test_no_key_finds_nothing(indexes: dict[str, OpenIndex]) -> None:
    for index in indexes.values():
        assert matched(index, [], None, True) == []
        assert matched(index, [], [], True) == []


@pytest.mark.parametrize("flat", [False, True])
def test_a_partition_of_numbers_is_found_by_nan_and_by_both_zeros(tmp_path: Path, flat: bool) -> None:
    values = {"NaN": math.nan, "-0.0": -0.0, "1.5": 1.5, "__HIVE_DEFAULT_PARTITION__": None}
    write_source(tmp_path / "source", {f"p={text}/a.parquet": pa.table({"k": [1]}) for text in values})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1, flat=flat)
    view = open_index(str(tmp_path / "index")).view
    spec = replace(view.spec, partition_types={"p": "double"})
    view = replace(view, snapshot=replace(view.snapshot, spec=spec))
    index = OpenIndex(storage_at(str(tmp_path / "index")), view, pinned=True)
    asked = [math.nan, -math.nan, 0.0, -0.0, 1.5, None, 2.0]
    keys, within = pa.record_batch({"k": [1] * len(asked)}), {"p": pa.array(asked, pa.float64())}
    found = all_matches(index, keys, within, MatchStats(), null_safe=True)
    assert found.rows.to_pylist() == [0, 1, 2, 3, 4, 5]
    assert list(map(str, found.entries["p"].to_pylist())) == ["nan", "nan", "-0.0", "-0.0", "1.5", "None"]
    assert index.holds(keys, within, MatchStats()).to_pylist() == [True] * 6 + [False]
    for value in asked[:-1]:
        assert [pointer.data_offset for pointer in index.lookup(1, {"p": value})] == [0]
    with pytest.raises(PartitionNotFound, match=r"no partition has p=2\.0; p has the values -0\.0, 1\.5, NaN, __HIVE"):
        index.lookup(1, {"p": 2.0})


def test_values_of_many_partition_columns_are_not_mixed_up_however_many_are_asked_for(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    folders = ["/".join(f"{name}={row}" for name in names) for row in (3, 19_990)]
    write_source(tmp_path / "source", {f"{folder}/f.parquet": pa.table({"k": [1]}) for folder in folders})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    index = open_index(str(tmp_path / "index"))
    rows = 20_000  # to the power of five: more combinations than 64 bits can number
    within = {name: pa.array(map(str, range(rows))) for name in names}
    assert all_matches(index, pa.record_batch({"k": [1] * rows}), within, MatchStats()).rows.to_pylist() == [3, 19_990]


def test_each_way_is_counted_and_logged_with_its_reason(
    indexes: dict[str, OpenIndex], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    index = open_index(indexes["text"].location)
    stats = MatchStats()
    keys = batch(index, [("https://é.example/3",)])
    with caplog.at_level(logging.INFO, "gnomon.match"):
        all_matches(index, keys, {}, stats, True)
    asked = stats.files_by_key + stats.files_by_leaf + stats.files_read_whole
    lines = [record.message for record in caplog.records if "for 1 keys" in record.message]
    assert asked == len(lines) > 0
    expected = {"key by key": asked, "leaf by leaf": 0}.get(way, stats.files_by_key)
    assert stats.files_by_key == expected
    assert all("entries" in line and "bytes" in line and "expected: key by key" in line for line in lines)


@pytest.mark.slow
def test_dense_keys_read_an_index_file_once_and_sparse_keys_little_of_it(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(range(200_000), pa.int64())})
    write_source(tmp_path / "source", {"a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    (entry,) = (file for segment in open_index(str(tmp_path / "index")).view.segments for file in segment.index_files)

    def asked(keys: range) -> MatchStats:
        index = open_index(str(tmp_path / "index"), filters=False)
        stats = MatchStats()
        matches = all_matches(index, pa.record_batch({"k": pa.array(keys, pa.int64())}), {}, stats)
        assert matches.rows.to_pylist() == list(range(len(keys)))
        assert matches.entries["data_offset"].to_pylist() == list(keys)
        return stats

    few, some, all_ = asked(range(0, 200_000, 50_000)), asked(range(30_000, 60_000)), asked(range(200_000))
    assert (few.files_by_key, some.files_by_leaf, all_.files_read_whole) == (1, 1, 1)
    assert few.bytes < entry.size / 2
    assert some.bytes < entry.size / 2
    assert all_.bytes < 1.2 * entry.size


def test_filters_spare_files_that_hold_none_of_the_keys(indexes: dict[str, OpenIndex]) -> None:
    index = open_index(indexes["text"].location)
    stats = MatchStats()
    assert all_matches(index, batch(index, [("nowhere",)] * 3), {}, stats).rows.to_pylist() == []
    assert stats.files_spared > 0
    assert stats.files_by_key + stats.files_by_leaf + stats.files_read_whole == 0


def test_an_entry_of_a_file_that_the_segment_does_not_cover_is_refused(tmp_path: Path, way: str) -> None:
    index = made(tmp_path, ["k"])
    all_matches(index, batch(index, [("https://é.example/3",)]), {}, MatchStats())  # its files are open now
    for segment in index.view.segments:
        segment.live.clear()
        segment.partition_of.clear()
    with pytest.raises(DamagedIndexFile, match=r"an entry names dt=.*, which its segment does not cover"):
        all_matches(index, batch(index, [("https://é.example/3",)]), {}, MatchStats())


def test_a_vacuumed_index_file_is_named(tmp_path: Path, way: str) -> None:
    index = made(tmp_path, ["k"])
    for path in (tmp_path / "index").rglob("*.btree.avro"):
        path.unlink()
    with pytest.raises(IndexFileGone, match="missing"):
        all_matches(index, batch(index, [("https://é.example/3",)]), {}, MatchStats())
