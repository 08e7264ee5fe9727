"""A flat index gives the answers of a partitioned one, at a cost that does not grow with the partitions."""

import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import ConcurrentCommit, SpecMismatch, UsageError
from gnomon.shadow.fetch.results import Query
from gnomon.shadow.fetch.source_files import FetchStats
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.metadata.snapshots import read_spec
from gnomon.shadow.metadata.spec import MOST_FOLDERS, KeyColumn, check_same, is_better_flat
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.opened import open_index
from tests.shadow.make_index import Build, index_source, write_source

DAYS = 12


def days(count: int) -> dict[str, pa.Table]:
    """One file per day; key 7 is in each day, twice in the first."""
    return {
        f"dt={day:02d}/country=d%2Fe/a.parquet": pa.table(
            {"k": [7] * (1 + (day == 0)) + list(range(100 * day + 10, 100 * day + 60)), "n": range(51 + (day == 0))}
        )
        for day in range(count)
    }


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "source", days(DAYS))
    for name, keys in (("by_k", ["k"]), ("by_both", ["dt", "k"])):
        index_source(tmp_path / "source", tmp_path / f"flat_{name}", keys, include=["n"], flat=True)
        index_source(tmp_path / "source", tmp_path / f"parted_{name}", keys, include=["n"])
    return tmp_path


def hits(index: OpenIndex, key: object, where: dict[str, object] | None = None) -> list[object]:
    found = index._found(Query([key], FetchStats(), where)).hits[0]
    return [(hit.pointer, hit.file.partition, hit.included) for hit in found]


@pytest.mark.parametrize("where", [None, {"dt": "03"}, {"dt": ["03", 2]}, {"dt": "03", "country": "d/e"}])
def test_it_answers_as_a_partitioned_one_does(lake: Path, where: dict[str, object] | None) -> None:
    flat, parted = (open_index(str(lake / f"{layout}_by_k")) for layout in ("flat", "parted"))
    for key in (7, 10, 311, 359, -1, None):
        assert hits(flat, {"k": key}, where) == hits(parted, {"k": key}, where)
        assert flat.fetch({"k": key}, where=where) == parted.fetch({"k": key}, where=where)
    flat, parted = (open_index(str(lake / f"{layout}_by_both")) for layout in ("flat", "parted"))
    for day in ("00", "03", "99"):
        for number in (7, 310, -1):
            assert hits(flat, (day, number), where) == hits(parted, (day, number), where)


def test_its_files_lie_in_the_index_folder_and_hold_the_partition_columns(lake: Path) -> None:
    files = sorted((lake / "flat_by_k").glob("*.btree.avro"))
    assert len(files) == 4
    assert not [path for path in (lake / "flat_by_k").iterdir() if path.is_dir() and path.name != "_shadow"]
    rows = [row for path in files for row in fastavro.reader(io.BytesIO(path.read_bytes()))]
    assert {(row["dt"], row["country"]) for row in rows} == {(f"{day:02d}", "d/e") for day in range(DAYS)}
    assert all(row["data_filename"].startswith(f"dt={row['dt']}/") for row in rows)


@pytest.mark.parametrize("count", [1, 30, 365])
def test_a_look_up_reads_one_file_however_many_partitions_there_are(tmp_path: Path, count: int) -> None:
    write_source(tmp_path / "source", days(count))
    index_source(tmp_path / "source", tmp_path / "index", ["k"], flat=True)
    index, stats = open_index(str(tmp_path / "index")), FetchStats()
    (found,) = index._found(Query([10 + 100 * (count - 1)], stats, None)).hits
    assert len(found) == 1
    assert stats.index.reads <= 2
    assert stats.index.nodes <= 3


def test_changed_and_vanished_files_are_followed(lake: Path) -> None:
    write_source(lake / "source", {"dt=03/country=d%2Fe/a.parquet": pa.table({"k": [5000], "n": [1]})})
    (lake / "source/dt=04/country=d%2Fe/a.parquet").unlink()
    write_source(lake / "source", {"dt=40/country=x/a.parquet": pa.table({"k": [5001], "n": [1]})})
    assert index_source(lake / "source", lake / "flat_by_k", ["k"], flat=True).number == 2
    index = open_index(str(lake / "flat_by_k"))
    assert [index.contains(key) for key in (310, 410, 510, 5000, 5001)] == [False, False, True, True, True]
    assert [row["dt"] for row in index.fetch(7)] == [f"{day:02d}" for day in [0, *range(DAYS)] if day not in (3, 4)]
    assert index.coverage().is_empty


def test_the_layout_stands_in_the_spec_and_cannot_be_changed_by_a_build(lake: Path) -> None:
    spec = read_spec(storage_at(str(lake / "flat_by_both")))
    assert spec.flat
    assert spec.to_json()["layout"] == "flat"
    assert spec.to_json()["keys"][0] == {"name": "dt", "type": "string", "partition": True, "column": "dt"}
    build = Build(lake / "source", lake / "other", ["k"])
    with pytest.raises(SpecMismatch, match="layout: flat in the index, partitioned asked for"):
        check_same(read_spec(storage_at(str(lake / "flat_by_k"))), build.spec, "x")


def test_a_column_of_a_partitions_name_is_told_apart(tmp_path: Path) -> None:
    table = pa.table({"DT": ["inner"], "metadata": ["m"]})
    write_source(tmp_path / "source", {"dt=1/a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["DT", "metadata"], flat=True)
    spec = read_spec(storage_at(str(tmp_path / "index")))
    assert spec.file_names == {"DT": "DT", "metadata": "metadata_", "dt": "dt_"}
    assert [row["DT"] for row in open_index(str(tmp_path / "index")).fetch(("inner", "m"))] == ["inner"]


@pytest.mark.slow
def test_the_segments_of_many_builds_stay_few_and_answer_alike(tmp_path: Path) -> None:
    oracle: dict[int, list[str]] = {}
    for day in range(40):
        path = f"dt={day:02d}/a.parquet"
        keys = [1, day, 1000 + day]
        write_source(tmp_path / "source", {path: pa.table({"k": pa.array(keys, pa.int64())})})
        for key in keys:
            oracle.setdefault(key, []).append(path)
        if day % 7 == 3:  # an earlier day is rewritten, one vanishes
            rewritten = pa.table({"k": pa.array([1, 5000 + day], pa.int64())})
            write_source(tmp_path / "source", {"dt=00/a.parquet": rewritten})
        snapshot = index_source(tmp_path / "source", tmp_path / "index", ["k"], buckets=2, flat=True)
        assert len(snapshot.segments) <= (day + 1).bit_length() + 1
    index = open_index(str(tmp_path / "index"))
    assert [pointer.data_filename for pointer in index.lookup(1)] == oracle[1]
    assert [index.contains(key) for key in (0, 1000, 5031, 5038, 1039)] == [False, False, False, True, True]
    assert sum(index.view.snapshot.partitions.values()) == 39 * 3 + 2
    assert verify(storage_at(str(tmp_path / "index")), sample=None).faults == []
    assert index.coverage().is_empty


def test_a_segment_that_others_replaced_meanwhile_is_not_merged(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(lake / "source", {"dt=20/country=x/a.parquet": pa.table({"k": range(700, 1700), "n": range(1000)})})
    build = Build(lake / "source", lake / "flat_by_k", ["k"], include=["n"], flat=True)
    (lake / "source/dt=04/country=d%2Fe/a.parquet").unlink()
    index_source(lake / "source", lake / "flat_by_k", ["k"], include=["n"], flat=True)
    snapshot = build.commit()
    assert len(snapshot.segments) >= 1
    index = open_index(str(lake / "flat_by_k"))
    assert [index.contains(key) for key in (10, 410, 1699)] == [True, False, True]
    assert len(index.lookup(1200)) == 1
    assert verify(storage_at(str(lake / "flat_by_k"))).faults == []


def test_compact_and_rebucket_keep_what_a_flat_index_answers(lake: Path) -> None:
    place = storage_at(str(lake / "flat_by_k"))
    write_source(lake / "source", {"dt=03/country=d%2Fe/a.parquet": pa.table({"k": [5000], "n": [1]})})
    index_source(lake / "source", lake / "flat_by_k", ["k"], flat=True)
    keys = [7, 10, 310, 311, 5000, 1159]
    before = [hits(open_index(place.root), {"k": key}) for key in keys]
    with pytest.raises(UsageError, match="flat"):
        compact(place, "dt=03/country=d%2Fe")
    assert compact(place).segments == 1
    assert [hits(open_index(place.root), {"k": key}) for key in keys] == before
    assert rebucket(place, 3).buckets == 3
    assert [hits(open_index(place.root), {"k": key}) for key in keys] == before
    assert verify(place, sample=None).faults == []


def test_an_index_becomes_flat_and_partitioned_again_and_answers_the_same(lake: Path) -> None:
    keys = [{"k": key} for key in (7, 10, 311, 359, -1)]
    for name in ("parted_by_k", "flat_by_k"):
        storage = storage_at(str(lake / name))
        before = [hits(open_index(storage.root), key) for key in keys]
        for flat in (name.startswith("parted"), name.startswith("flat")):
            result = rebucket(storage, flat=flat)
            assert result.committed
            index = open_index(storage.root)
            assert index.spec.flat is flat
            assert [hits(index, key) for key in keys] == before
            assert verify(storage, None).is_sound
            assert not rebucket(storage, flat=flat).committed
        assert [hits(open_index(storage.root, 1), key) for key in keys] == before, "older snapshots keep their layout"


@pytest.mark.slow
def test_a_large_index_changes_its_layout_in_pieces(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.shadow.write.merge.RELAID_AT_ONCE", 3000)
    keys = [{"k": key} for key in (7, 10, 311, 359, -1)]
    for name in ("parted_by_k", "flat_by_k"):
        storage = storage_at(str(lake / name))
        before = [hits(open_index(storage.root), key) for key in keys]
        for flat in (name.startswith("parted"), name.startswith("flat")):
            assert rebucket(storage, flat=flat).committed
            assert [hits(open_index(storage.root), key) for key in keys] == before
            assert verify(storage, None).is_sound


def test_a_build_follows_the_layout_that_the_index_has_by_now(lake: Path) -> None:
    write_source(lake / "source", {"dt=77/country=x/a.parquet": pa.table({"k": [7, 777], "n": [1, 2]})})
    build = Build(lake / "source", lake / "parted_by_k", ["k"])
    rebucket(storage_at(str(lake / "parted_by_k")), 2, flat=True)
    with pytest.raises(ConcurrentCommit, match=r"layout: partitioned before, flat now"):
        build.commit()
    index_source(lake / "source", lake / "parted_by_k", ["k"])
    index = open_index(str(lake / "parted_by_k"))
    assert (index.spec.flat, index.spec.buckets) == (True, 2)
    assert [row["dt"] for row in index.fetch(777)] == ["77"]
    assert len(index.fetch(7)) == DAYS + 2
    assert verify(storage_at(index.location), None).is_sound


def test_the_buckets_of_another_layout_come_from_the_rows(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.shadow.metadata.spec.ENTRIES_PER_BUCKET", 100)
    assert rebucket(storage_at(str(lake / "parted_by_k")), flat=True).buckets == 7  # 613 rows
    assert rebucket(storage_at(str(lake / "parted_by_k")), flat=False).buckets == 1  # 52 in the largest partition


def test_an_index_without_partitions_has_no_other_layout(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    with pytest.raises(UsageError, match="its source has no partitions"):
        rebucket(storage_at(str(tmp_path / "index")), flat=True)


def test_many_partitions_ask_for_a_flat_index_unless_the_key_names_one() -> None:
    by_k, by_day = KeyColumn("k", "bigint"), KeyColumn("dt", "string", partition=True)
    assert [is_better_flat(count, [by_k]) for count in (0, 1, MOST_FOLDERS, MOST_FOLDERS + 1)] == [False] * 3 + [True]
    assert not is_better_flat(5000, [by_day, by_k])
