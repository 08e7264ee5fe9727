"""An index of Dione's, taken over: its entries are those of a build, and what does not hold is left out by name."""

import math
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from gnomon.btree import BTreeReader, Column, DamagedIndexFile, EntrySchema
from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter
from gnomon.jobs.build import build
from gnomon.jobs.dione import import_dione
from gnomon.jobs.dione.entry_import import EntryImport
from gnomon.shadow import UsageError
from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.lookup import open_index_file
from gnomon.shadow.metadata import SegmentFile, open_view
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from gnomon.sources import POINTER_COLUMNS
from tests.jobs.dione.dione_files import dione_index, write_file
from tests.opened import open_index
from tests.sources import avro_files, sequence_files

DAYS = ("dt=2026-01-01", "dt=2026-01-02")
ROWS = 300  # of a file
SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "key", "type": "string"}, {"name": "n", "type": "long"}]}


def rows_of(seed: int) -> pa.Table:
    """Keys with some duplicates, and a number."""
    order = np.random.default_rng(seed).permutation(ROWS)
    keys = [f"key {seed * ROWS + min(n, ROWS - 20):05d}" for n in order.tolist()]
    return pa.table({"key": keys, "n": pa.array(order + seed * ROWS, pa.int64())})


def write_source(folder: Path, format: str, files: int = 2) -> Path:
    """A source of two days, each with some files of the format."""
    seed = 0
    for day in DAYS:
        (folder / day).mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            (folder / day / f"part-{seed}").write_bytes(file_of(format, seed))
            seed += 1
    return folder


def file_of(format: str, seed: int) -> bytes:
    table = rows_of(seed)
    sink = pa.BufferOutputStream()
    if format == "parquet":
        pq.write_table(table, sink, row_group_size=70)
    elif format == "orc":
        pa.orc.write_table(table, sink)
    elif format == "avro":
        return avro_files.written(SCHEMA, table.to_pylist())
    else:
        pairs = [(row["key"], str(row["n"])) for row in table.to_pylist()]
        return sequence_files.written(pairs, codec="DefaultCodec", blocks=format == "sequence blocks")
    return bytes(sink.getvalue())


def contents(index: Path) -> list[tuple[object, ...]]:
    """All entries of an index: its files by partition and bucket, with their entries in order."""
    storage = storage_at(index)
    found: list[tuple[object, ...]] = []
    for info in storage.list():
        if info.path.endswith(".btree.avro"):
            place = info.path.rpartition("/")[0], info.path.rpartition("_")[2]
            with storage.open(info.path) as reader:
                found += [(*place, *key, *value) for key, value in BTreeReader(reader).scan()]
    return found


FORMATS = {"parquet": ["n"], "orc": ["n"], "avro": ["n"], "sequence records": [], "sequence blocks": []}


@pytest.mark.parametrize(("format", "fields"), FORMATS.items())
def test_an_import_has_the_entries_of_a_build(tmp_path: Path, format: str, fields: Sequence[str]) -> None:
    kind = format.partition(" ")[0]
    source = write_source(tmp_path / "source", format)
    dione = dione_index(source, tmp_path / "dione", ["key"], fields, kind)
    result = import_dione(None, dione, tmp_path / "imported", source)
    build(None, source, tmp_path / "built", ["key"], fields)
    assert result.left_out == []
    assert result.build.rows == 4 * ROWS
    assert contents(tmp_path / "imported") == contents(tmp_path / "built")
    assert verify(storage_at(tmp_path / "imported"), sample=None).faults == []


KEYS: dict[str, tuple[pa.DataType, list[object]]] = {
    "text": (pa.string(), [None, "", "a", "b", "\uffff"]),
    "double": (pa.float64(), [None, -math.inf, -1.5, -0.0, 0.0, 2.5, math.nan]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_in_diones_order_have_ranges_in_gnomons_order_after_an_import(tmp_path: Path, kind: str) -> None:
    """There nulls are last, and -0.0 is less than 0.0. The import sorts the entries anew."""
    arrow, values = KEYS[kind]
    for day in DAYS:
        keys = pa.array([values[n % len(values)] for n in range(50)], arrow)
        (tmp_path / "source" / day).mkdir(parents=True)
        pq.write_table(pa.table({"key": keys, "n": range(50)}), tmp_path / "source" / day / "part-0")
    dione_index(tmp_path / "source", tmp_path / "dione", ["key"], ["n"], "parquet")
    assert import_dione(None, tmp_path / "dione", tmp_path / "index", tmp_path / "source").left_out == []
    opened, ordered = open_index(tmp_path / "index"), [repr(value) for value in values]
    found = [repr(row["key"]) for row in opened.range()]
    assert Counter(found) == Counter(repr(values[n % len(values)]) for n in range(50) for _ in DAYS)
    equal = {"-0.0": "0.0"}
    assert list(dict.fromkeys(equal.get(key, key) for key in found)) == [key for key in ordered if key not in equal]
    assert list(opened.range(reverse=True)) == list(opened.range())[::-1] or kind == "double"
    assert opened.count(values[2], values[3]) == found.count(ordered[2])


def test_a_file_of_diones_is_no_index_file(tmp_path: Path) -> None:
    """It may have another order of keys than ranges and look-ups expect."""
    source = write_source(tmp_path / "source", "parquet")
    build(None, source, tmp_path / "index", ["key"], ["n"], buckets=1)
    storage = storage_at(tmp_path / "index")
    view = open_view(storage)
    segment = view.segments[0]
    entry = segment.index_files[0]
    with storage.open(entry.path) as reader:
        table = pa.Table.from_batches(list(BTreeReader(reader).scan_batches()))
    write_file(tmp_path / "index" / entry.path, table, ["key"])
    data = storage.read(entry.path)
    found = SegmentFile(segment, replace(entry, size=len(data), crc32=zlib.crc32(data)))
    with pytest.raises(DamagedIndexFile, match=f"not the index file of {entry.entries} entries that was written"):
        open_index_file(storage, found, view.spec, LookupStats())


def imported(tmp_path: Path, **options: object) -> dict[str, str]:
    """Import, and return the files that were left out, with the reasons."""
    result = import_dione(None, tmp_path / "dione", tmp_path / "index", tmp_path / "source", **options)  # type: ignore[arg-type]
    return {one.path: one.reason for one in result.left_out}


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """A Parquet source of two days with two files each, and Dione's index of it."""
    source = write_source(tmp_path / "source", "parquet")
    dione_index(source, tmp_path / "dione", ["key"], ["n"], "parquet")
    return source


def rewrite(folder: Path, change: Callable[[pa.Table], pa.Table], day: str = DAYS[0]) -> None:
    """Write the index files of a day again, with their entries changed."""
    for path in sorted((folder / day).iterdir()):
        with storage_at(path.parent).open(path.name) as reader:
            table = pa.Table.from_batches(list(BTreeReader(reader).scan_batches()))
        write_file(path, change(table), ["key"])


def replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def is_of(table: pa.Table, name: str) -> np.ndarray:
    return np.array([path.endswith(name) for path in table.column("data_filename").to_pylist()])


def test_each_night_takes_over_what_dione_appended(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "parquet")
    shutil.move(source / DAYS[1], tmp_path / DAYS[1])
    dione_index(source, tmp_path / "dione", ["key"], ["n"], "parquet")
    assert imported(tmp_path) == {}
    shutil.move(tmp_path / DAYS[1], source / DAYS[1])
    assert imported(tmp_path) == dict.fromkeys(
        [f"{DAYS[1]}/part-2", f"{DAYS[1]}/part-3"], "the index of Dione's has no entries of it"
    )
    assert open_index(tmp_path / "index").view.snapshot.number == 1
    dione_index(source, tmp_path / "second", ["key"], ["n"], "parquet")
    shutil.move(tmp_path / "second" / DAYS[1], tmp_path / "dione" / DAYS[1])
    assert imported(tmp_path) == {}
    again = import_dione(None, tmp_path / "dione", tmp_path / "index", source)
    assert not again.build.committed
    build(None, source, tmp_path / "built", ["key"], ["n"])
    assert contents(tmp_path / "index") == contents(tmp_path / "built")


def test_a_file_with_too_few_entries_is_left_out_and_built_later(tmp_path: Path, parquet: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        kept = ~is_of(table, "part-1")
        kept[np.flatnonzero(~kept)[3:]] = True
        return table.filter(pa.array(kept))

    rewrite(tmp_path / "dione", change)
    assert imported(tmp_path) == {f"{DAYS[0]}/part-1": f"{ROWS - 6} of its {ROWS} rows have entries"}
    index = open_index(tmp_path / "index")
    assert len(index.view.covered) == 3
    build(None, parquet, tmp_path / "index", ["key"], ["n"])
    assert verify(storage_at(tmp_path / "index"), sample=None).faults == []
    assert sum(file.rows for file in open_index(tmp_path / "index").view.covered.values()) == 4 * ROWS


def test_a_file_that_is_indexed_twice_is_left_out(tmp_path: Path, parquet: Path) -> None:
    for path in list((tmp_path / "dione" / DAYS[0]).iterdir()):
        shutil.copy2(path, path.with_name("part-00009" + path.name[10:]))
    left_out = imported(tmp_path)
    assert set(left_out) == {f"{DAYS[0]}/part-0", f"{DAYS[0]}/part-1"}
    assert set(left_out.values()) == {f"{2 * ROWS} entries for its {ROWS} rows: it is indexed twice"}


def test_a_file_with_entries_in_two_partitions_is_left_out(tmp_path: Path, parquet: Path) -> None:
    for path in list((tmp_path / "dione" / DAYS[0]).iterdir()):
        shutil.copy2(path, tmp_path / "dione" / DAYS[1] / path.name)
    left_out = imported(tmp_path)
    assert left_out == dict.fromkeys(
        [f"{DAYS[0]}/part-0", f"{DAYS[0]}/part-1"], "its entries lie in several partitions of the index"
    )
    assert {key for _, _, key, *_ in contents(tmp_path / "index")}.isdisjoint(rows_of(0).column("key").to_pylist())


def test_entries_that_lead_to_no_row_leave_their_file_out(tmp_path: Path, parquet: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        groups = table.column("data_offset").to_numpy().copy()
        groups[np.flatnonzero(is_of(table, "part-0"))[0]] = 99
        return replaced(table, "data_offset", pa.array(groups))

    rewrite(tmp_path / "dione", change)
    reason = f"2 entries of {ROWS} lead to no row: the file was rewritten"
    assert imported(tmp_path) == {f"{DAYS[0]}/part-0": reason}


def test_a_file_rewritten_since_with_other_keys_is_left_out(tmp_path: Path, parquet: Path) -> None:
    (parquet / DAYS[1] / "part-3").write_bytes(file_of("parquet", 7))
    left_out = imported(tmp_path)
    assert set(left_out) == {f"{DAYS[1]}/part-3"}
    assert "key" in left_out[f"{DAYS[1]}/part-3"]


def one_key_changed() -> bytes:
    """The last file, with another key in one row."""
    keys = rows_of(3).column("key").to_pylist()
    keys[150] = "another key"
    sink = pa.BufferOutputStream()
    pq.write_table(replaced(rows_of(3), "key", pa.array(keys)), sink, row_group_size=70)
    return bytes(sink.getvalue())


def test_one_changed_key_of_a_file_written_since_is_found(tmp_path: Path, parquet: Path) -> None:
    (parquet / DAYS[1] / "part-3").write_bytes(one_key_changed())
    reason = "its rows do not have the keys of their entries: the file was rewritten"
    assert imported(tmp_path) == {f"{DAYS[1]}/part-3": reason}


def test_compare_all_finds_one_changed_key_whatever_the_times(tmp_path: Path, parquet: Path) -> None:
    path = parquet / DAYS[1] / "part-3"
    path.write_bytes(one_key_changed())
    os.utime(path, (0, 0))
    reason = "its rows do not have the keys of their entries: the file was rewritten"
    assert imported(tmp_path, compare_all=True) == {f"{DAYS[1]}/part-3": reason}


@pytest.mark.parametrize(("choose", "length"), [(max, -40), (min, -40), (min, 0), (min, 100)])
def test_a_damaged_index_file_leaves_out_its_partition_alone(
    tmp_path: Path, parquet: Path, choose: Callable[..., Path], length: int
) -> None:
    """Also the first file, of which the columns are read."""
    path = choose((tmp_path / "dione" / DAYS[0]).iterdir())
    path.write_bytes(path.read_bytes()[:length])
    left_out = imported(tmp_path)
    assert set(left_out) == {f"{DAYS[0]}/part-0", f"{DAYS[0]}/part-1"}
    assert all(str(path) in reason and "damaged" in reason for reason in left_out.values())
    assert len(open_index(tmp_path / "index").view.covered) == 2


def test_an_index_of_damaged_files_alone_is_refused_by_name(tmp_path: Path, parquet: Path) -> None:
    for path in (tmp_path / "dione").rglob("*.avro"):
        path.write_bytes(b"")
    with pytest.raises(UsageError, match="no file of the index of Dione's can be read; the first one: ") as caught:
        imported(tmp_path)
    assert str(min((tmp_path / "dione" / DAYS[0]).iterdir())) in str(caught.value)


@pytest.mark.parametrize("what", ["index", "source"])
def test_a_file_that_vanishes_during_the_import_leaves_out_what_it_has(
    tmp_path: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    begin = EntryImport.entries

    def late(self: EntryImport) -> Any:
        if what == "index":
            min((tmp_path / "dione" / DAYS[0]).iterdir()).unlink()
        else:
            (tmp_path / "source" / DAYS[0] / "part-0").unlink()
        return begin(self)

    monkeypatch.setattr(EntryImport, "entries", late)
    left_out = imported(tmp_path)
    expected = {f"{DAYS[0]}/part-0", f"{DAYS[0]}/part-1"} if what == "index" else {f"{DAYS[0]}/part-0"}
    assert set(left_out) == expected
    assert all("vanished while" in reason for reason in left_out.values())


def test_pointers_of_other_types_are_refused(tmp_path: Path) -> None:
    columns = (Column("data_filename", "string"), *(Column(name, "string") for name in POINTER_COLUMNS[1:]))
    writer = DioneWriter(EntrySchema((Column("key", "string"),), columns), 10, 2)
    writer.write(pa.table([["a"]] * 5, names=["key", *POINTER_COLUMNS]))
    write_source(tmp_path / "source", "parquet")
    (tmp_path / "dione" / DAYS[0]).mkdir(parents=True)
    (tmp_path / "dione" / DAYS[0] / "part-0.btree.avro").write_bytes(b"".join(writer.finish().chunks))
    with pytest.raises(UsageError, match=r"column data_offset: not a pointer: expected bigint, .* found string"):
        imported(tmp_path)


def test_rows_of_files_that_are_gone_are_not_taken_over(tmp_path: Path, parquet: Path) -> None:
    (parquet / DAYS[1] / "part-2").unlink()
    assert imported(tmp_path) == {}
    assert len(open_index(tmp_path / "index").view.covered) == 3


def test_a_file_without_rows_is_covered(tmp_path: Path, parquet: Path) -> None:
    pq.write_table(rows_of(0).slice(0, 0), parquet / DAYS[0] / "part-9")
    assert imported(tmp_path) == {}
    assert len(open_index(tmp_path / "index").view.covered) == 5


def test_an_import_keeps_the_chosen_fields(tmp_path: Path, parquet: Path) -> None:
    import_dione(None, tmp_path / "dione", tmp_path / "index", parquet, include=[])
    assert open_index(tmp_path / "index").spec.include == ()


def test_a_column_of_another_type_is_refused(tmp_path: Path, parquet: Path) -> None:
    rewrite(tmp_path / "dione", lambda table: replaced(table, "n", table.column("n").cast(pa.float64())))
    with pytest.raises(UsageError, match=r"column n.*double.*bigint"):
        imported(tmp_path)


def test_an_index_of_other_data_is_refused(tmp_path: Path, parquet: Path) -> None:
    shutil.move(parquet, tmp_path / "moved")
    with pytest.raises(UsageError, match="no file that it names is a file of the source"):
        import_dione(None, tmp_path / "dione", tmp_path / "index", tmp_path / "moved")
    assert not (tmp_path / "index" / "_shadow" / "snapshots").exists()


@pytest.mark.parametrize("old", ["{}", "file:{}/", "file://{}"])
def test_entries_of_a_moved_source_are_taken_over(tmp_path: Path, parquet: Path, old: str) -> None:
    now = shutil.move(parquet, tmp_path / "now")
    moved = {old.format(parquet): f"file:{now}/", f"{parquet}/another": "/gone"}
    found = import_dione(None, tmp_path / "dione", tmp_path / "index", now, moved=moved)
    assert (found.build.rows, found.left_out) == (4 * ROWS, [])
    build(None, now, tmp_path / "built", ["key"], ["n"])
    assert contents(tmp_path / "index") == contents(tmp_path / "built")


@pytest.mark.parametrize(
    ("fault", "error", "what"),
    [
        ("no files", SourceNotFound, "no files of an index of Dione's"),
        ("no pointers", UsageError, "no column data_filename"),
        ("ours", UsageError, "an index of ours"),
        ("unnamed source", UsageError, "name the source"),
        ("unknown field", UsageError, "m is not one of its more fields; it has n"),
    ],
)
def test_what_is_no_index_of_diones_is_refused(
    tmp_path: Path, parquet: Path, fault: str, error: type[Exception], what: str
) -> None:
    dione, source, more = tmp_path / "dione", parquet, {}
    if fault == "no files":
        dione = tmp_path / "nothing"
    elif fault == "no pointers":
        rewrite(dione, lambda table: table.drop_columns(["data_filename"]))
    elif fault == "ours":
        dione = tmp_path / "ours"
        build(None, source, dione, ["key"])
    elif fault == "unnamed source":
        source = None  # type: ignore[assignment]
    else:
        more = {"include": ["m"]}
    with pytest.raises(error, match=what):
        import_dione(None, dione, tmp_path / "index", source, **more)  # type: ignore[arg-type]


def test_files_of_a_store_that_is_not_known_are_of_another_source(tmp_path: Path, parquet: Path) -> None:
    for day in DAYS:
        rewrite(tmp_path / "dione", named_elsewhere, day)
    with pytest.raises(UsageError, match="no file that it names is a file of the source; it names viewfs://lake/a"):
        imported(tmp_path)


def named_elsewhere(table: pa.Table) -> pa.Table:
    return replaced(table, "data_filename", pa.array(["viewfs://lake/a"] * table.num_rows))
