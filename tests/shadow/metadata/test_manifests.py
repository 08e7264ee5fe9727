"""A manifest is only read if it is, byte for byte, the one that its snapshot names."""

import copy
import io
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from gnomon.shadow.errors import AlreadyExists, DamagedMetadata
from gnomon.shadow.metadata import manifests
from gnomon.shadow.metadata.manifests import (
    BloomFilterEntry,
    IndexFileEntry,
    PageMapsEntry,
    Segment,
    SegmentRef,
    SourceFileEntry,
    manifest_path,
    read_segment,
    write_segment,
)
from gnomon.shadow.storage import Storage, storage_at

INDEX_FILES = (
    IndexFileEntry("p=1/s_00000.btree.avro", "p=1", 0, 10, 2**40, 2**32 - 1, BloomFilterEntry("f", 2**40, 2**32 - 1)),
    IndexFileEntry("p=2/s_00001.btree.avro", "p=2", 1, 5, 100, 0),
)
SOURCE_FILES = (
    SourceFileEntry("p=1/ü.parquet", "p=1", 10, 2**40, 1_700_000_000_123_456_789, "ab" * 16),
    SourceFileEntry("p=2/b.parquet", "p=2", 3, 1, 2, ""),
    SourceFileEntry(
        "p=2/c.parquet", "p=2", 2, 1, 2, "", "tag", PageMapsEntry("m", 2**40, 2**39, 2**38, 2**32 - 1), 9, 3
    ),
)
SEGMENT = Segment("s", INDEX_FILES, SOURCE_FILES)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at(str(tmp_path))


def test_a_list_comes_back_as_written(storage: Storage) -> None:
    ref = write_segment(storage, SEGMENT)
    assert read_segment(storage, ref) == SEGMENT


@pytest.mark.parametrize("missing", [("ragged",), ("ragged", "ctime_ns"), ("ragged", "ctime_ns", "page_maps")])
def test_a_list_from_before_a_field_is_read(storage: Storage, missing: Sequence[str]) -> None:
    ref = write_segment(storage, SEGMENT)
    reader = fastavro.reader(io.BytesIO(storage.read(manifest_path("s"))))
    schema: Any = copy.deepcopy(reader.writer_schema)
    source_fields = schema["fields"][1]["type"][1]["fields"]
    assert [source_fields.pop()["name"] for _ in missing] == list(missing)
    out = io.BytesIO()
    fastavro.writer(out, schema, list(reader), codec="deflate")
    data = out.getvalue()
    storage.delete(manifest_path("s"))
    storage.put_new(manifest_path("s"), [data])
    found = read_segment(storage, SegmentRef("s", len(data), zlib.crc32(data)))
    empty: dict[str, Any] = {name: {"page_maps": None}.get(name, 0) for name in missing}
    assert found == replace(SEGMENT, source_files=tuple(replace(file, **empty) for file in SOURCE_FILES))
    assert ref.id == found.id


def test_dead_files_belong_to_the_snapshot(storage: Storage) -> None:
    ref = write_segment(storage, SEGMENT)
    segment = read_segment(storage, SegmentRef(ref.id, ref.size, ref.crc32, dead=(1,)))
    assert list(segment.live) == ["p=1/ü.parquet", "p=2/c.parquet"]
    assert segment.partition_of == {file.path: file.partition for file in SOURCE_FILES}


def test_index_files_of_a_partition_without_live_files_are_not_looked_into(storage: Storage) -> None:
    assert set(SEGMENT.by_bucket) == {("p=1", 0), ("p=2", 1)}
    assert set(Segment("s", INDEX_FILES, SOURCE_FILES, frozenset({1})).by_bucket) == {("p=1", 0), ("p=2", 1)}
    assert set(Segment("s", INDEX_FILES, SOURCE_FILES, frozenset({1, 2})).by_bucket) == {("p=1", 0)}


def test_a_list_is_never_overwritten(storage: Storage) -> None:
    write_segment(storage, SEGMENT)
    with pytest.raises(AlreadyExists):
        write_segment(storage, Segment("s", (), SOURCE_FILES))


def test_every_flipped_byte_is_noticed(storage: Storage, tmp_path: Path) -> None:
    ref = write_segment(storage, SEGMENT)
    path = tmp_path / manifest_path("s")
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedMetadata, match=f"{path} at byte 0: expected {len(data)} bytes with CRC"):
            read_segment(storage, ref)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_list_cut_or_grown_is_named_with_the_place(storage: Storage, tmp_path: Path, change: int) -> None:
    ref = write_segment(storage, SEGMENT)
    path = tmp_path / manifest_path("s")
    data = path.read_bytes()
    path.write_bytes((data + b"x")[: len(data) + change])
    at = min(len(data), len(data) + change)
    with pytest.raises(DamagedMetadata, match=f"{path} at byte {at}: .*restore it or run gnomon build INDEX --full"):
        read_segment(storage, ref)


def test_the_list_of_another_segment_under_this_name_is_noticed(storage: Storage, tmp_path: Path) -> None:
    ref = write_segment(storage, SEGMENT)
    write_segment(storage, Segment("t", (), SOURCE_FILES[:1]))
    (tmp_path / manifest_path("t")).replace(tmp_path / manifest_path("s"))
    with pytest.raises(DamagedMetadata, match=r"segments/s\.avro at byte"):
        read_segment(storage, ref)


def test_a_missing_list_is_named(storage: Storage, tmp_path: Path) -> None:
    ref = write_segment(storage, SEGMENT)
    (tmp_path / manifest_path("s")).unlink()
    with pytest.raises(DamagedMetadata, match=r"segments/s\.avro: missing, though the snapshot names it"):
        read_segment(storage, ref)


def of_another_schema() -> bytes:
    out = io.BytesIO()
    schema = {"type": "record", "name": "R", "fields": [{"name": "index_file", "type": "string"}]}
    fastavro.writer(out, schema, [{"index_file": "x"}])
    return out.getvalue()


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"{}", b"Obj\x01 of no list", of_another_schema()])
def test_bytes_that_are_no_list_are_damage_though_their_checksum_is_right(storage: Storage, data: bytes) -> None:
    storage.put_new(manifest_path("s"), [data])
    with pytest.raises(DamagedMetadata, match=r"segments/s\.avro at byte 0: not the manifest of a segment"):
        read_segment(storage, SegmentRef("s", len(data), zlib.crc32(data)))


def test_the_files_of_a_partition_share_its_name_in_memory(storage: Storage) -> None:
    files = tuple(SourceFileEntry(f"p=1/{i}.parquet", "p=1", 1, 1, 1, "") for i in range(100))
    read = read_segment(storage, write_segment(storage, Segment("t", INDEX_FILES[:1], files)))
    partitions = [file.partition for file in read.source_files] + [file.partition for file in read.index_files]
    assert len(set(map(id, partitions))) == 1


def test_writing_a_manifest_holds_one_record_at_a_time(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, most = weakref.WeakSet[Any](), 0

    class Record(dict[str, Any]):
        def __init__(self, *args: Any) -> None:
            nonlocal most
            super().__init__(*args)
            alive.add(self)
            most = max(most, len(alive))

        __hash__ = object.__hash__  # type: ignore[assignment]

    records_of = manifests._records
    monkeypatch.setattr(manifests, "_records", lambda segment: map(Record, records_of(segment)))
    files = tuple(SourceFileEntry(f"{i}.parquet", "", 1, 1, 1, "") for i in range(100))
    write_segment(storage, Segment("t", (), files))
    assert 0 < most < 5
