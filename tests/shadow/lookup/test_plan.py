"""shadow/lookup/plan.py: the same index files and filters for a key, however many keys come with it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gnomon.btree.blocks import LookupStats
from gnomon.btree.keys import Key, stored_array
from gnomon.shadow import OpenIndex
from gnomon.shadow.lookup.plan import FEW_KEYS, Keys, Lookup, Plan
from gnomon.shadow.metadata import KeyColumn, snapshot_view
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.shadow.make_index import index_source, write_source

KEYS: list[Key] = [(None,), *((f"https://é.example/{i}",) for i in range(3 * FEW_KEYS))]
Found = dict[str, list[tuple[int, bool]]]  # for each index file, the keys asked there, and whether they pass its filter


@pytest.fixture(params=["flat", "by folder"])
def index(tmp_path: Path, request: pytest.FixtureRequest) -> OpenIndex:
    """Two segments, three partitions; a third of the keys is absent."""
    for day in range(3):
        rows = [key for (key,) in KEYS if key is None or int(key.rpartition("/")[2]) % 3]
        write_source(tmp_path / "lake", {f"dt={day}/p.parquet": pa.table({"k": pa.array(rows[day::3], pa.string())})})
        index_source(tmp_path / "lake", tmp_path / "index", ["k"], buckets=3, flat=request.param == "flat")
    return open_index(str(tmp_path / "index"))


def planned(index: OpenIndex, keys: Keys, places: Sequence[int], selections: list[int] | np.ndarray) -> Found:
    """The plan of keys, each in one of two selections of partitions; `places` are their places in KEYS."""
    partitions = [index.view.partitions_of({}, where) for where in ((), (("dt", "1"),))]
    plan = Plan(Lookup(storage_at(index.location), 1 << 20), index.view, keys, partitions, selections)
    found: Found = {}
    for group in plan.groups():
        for _, entry in group.files:
            passed = plan.passes(entry, group.places, LookupStats())
            asked = [(places[place], bool(flag)) for place, flag in zip(group.places, passed, strict=True)]
            found[entry.path] = sorted([*found.get(entry.path, []), *asked])
    return found


def test_one_key_a_list_and_columns_of_keys_ask_the_same_files_and_filters(index: OpenIndex) -> None:
    spec, every = index.spec, range(len(KEYS))
    selections = [place % 2 for place in every]
    one_by_one: Found = {}
    for place in every:
        for path, asked in planned(index, Keys(spec, [KEYS[place]]), [place], [selections[place]]).items():
            one_by_one[path] = sorted([*one_by_one.get(path, []), *asked])
    assert {passed for asked in one_by_one.values() for _, passed in asked} == {True, False}
    assert planned(index, Keys(spec, KEYS), every, selections) == one_by_one
    columns = [stored_array([key for (key,) in KEYS], "string")]
    assert planned(index, Keys(spec, columns=columns), every, np.array(selections)) == one_by_one


@pytest.mark.parametrize("kind", ["string", "bigint", "double", "decimal(9,2)", "decimal(30,2)", "date", "binary"])
def test_keys_of_which_none_is_left_have_no_group(index: OpenIndex, kind: str) -> None:
    spec = replace(index.spec, keys=(KeyColumn("k", kind),))
    for columns in ([stored_array([], kind)], [stored_array([None], kind).take(pa.array([], pa.int64()))]):
        keys = Keys(spec, columns=columns)
        assert (
            list(Plan(Lookup(storage_at(index.location), 0), index.view, keys, [("dt=1",)], np.zeros(0, int)).groups())
            == []
        )


def test_keys_without_a_partition_ask_no_file(index: OpenIndex) -> None:
    plan = Plan(Lookup(storage_at(index.location), 1 << 20), index.view, Keys(index.spec, KEYS[:2]), [()], [0, 0])
    assert list(plan.groups()) == []


def test_the_files_of_a_bucket_are_those_of_all_folders_and_few_are_kept(
    index: OpenIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = index.view
    every, names = view.partitions_of({}, ()), list(view.partitions)
    for most, kept in ((0, 1), (1 << 20, 3)):
        monkeypatch.setattr(snapshot_view, "MOST_KEPT", most)
        for bucket in [*range(view.spec.buckets)] * 2:
            folders = view.spec.folders_of(names)
            expected = [file for folder in folders for file in view.files_of(folder, bucket)]
            assert expected
            assert view.files_in(every, bucket) == view.files_in(names, bucket) == expected
        assert len(view._of_buckets) == kept
    assert view.files_in([], 0) == []
