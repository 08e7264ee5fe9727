"""Page maps recorded when a file is indexed: the same rows, without reads of its page headers."""

from typing import Any

import numpy as np
import pytest
from isal import isal_zlib

from gnomon.sources.contract import Maps
from gnomon.sources.parquet import DamagedMaps, check_maps, map_codec, open_parquet, read_plan
from tests.profiles import positions
from tests.sources.parquet_files import flat_table, nested_table, written
from tests.sources.readers import BytesReader

TABLE = flat_table()
FILES: dict[str, bytes] = {
    "page headers": written(TABLE),
    "page index": written(TABLE, write_page_index=True),
    "no dictionary": written(TABLE, use_dictionary=False, data_page_version="2.0"),
    "nested, some without a map": written(nested_table()),
    "nested": written(nested_table(), data_page_version="2.0"),
    "no rows": written(TABLE.slice(0, 0)),
}


def given(maps: bytes) -> Maps:
    return lambda: maps


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_recorded_maps_give_the_same_rows_and_need_no_walk(data: bytes) -> None:
    reader = BytesReader(data)
    without = open_parquet(reader)
    maps = without.export_maps(reader)
    reader.forget()
    source = open_parquet(reader, maps=given(maps))
    assert reader.rounds == 1  # the footer
    for row in range(0, source.rows, 11):
        reader.forget()
        found = source.fetch(reader, [(row, 0)], source.schema.names)
        assert reader.rounds == 1
        assert found.equals(without.fetch(BytesReader(data), [(row, 0)], source.schema.names))
    assert source.export_maps(reader) == maps


def test_recorded_maps_are_small() -> None:
    table = flat_table(20_000)
    reader = BytesReader(written(table, data_page_size=1000, row_group_size=20_000))
    source = open_parquet(reader)
    pages = 20_000 // 16 * table.num_columns  # at most: the writer looks at the size every 16 rows
    assert len(source.export_maps(reader)) < 4 * pages


def test_what_is_recorded_counts_as_memory() -> None:
    reader = BytesReader(FILES["page headers"])
    source = open_parquet(reader)
    bare = source.cache_bytes
    assert open_parquet(reader, maps=given(source.export_maps(reader))).cache_bytes > bare


def test_recorded_maps_beyond_their_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BytesReader(FILES["page headers"])
    source = open_parquet(reader)
    maps = source.export_maps(reader)
    size = len(isal_zlib.decompress(maps[map_codec.NUMBERS_AT :]))
    monkeypatch.setattr(map_codec, "MAPS_LIMIT", size)
    assert source.has_maps(reader, maps)
    monkeypatch.setattr(map_codec, "MAPS_LIMIT", size - 1)
    with pytest.raises(DamagedMaps, match=f"more than {size - 1} bytes"):
        source.has_maps(reader, maps)


def test_recorded_maps_that_are_not_deflated_are_refused() -> None:
    reader = BytesReader(FILES["page headers"])
    source = open_parquet(reader)
    body = bytes.fromhex(source.digest) + b"not deflated"
    with pytest.raises(DamagedMaps, match="cannot be read"):
        source.has_maps(reader, map_codec.MAGIC + isal_zlib.crc32(body).to_bytes(4, "little") + body)


def test_any_changed_byte_of_recorded_maps_is_noticed() -> None:
    reader = BytesReader(FILES["page headers"])
    source = open_parquet(reader)
    maps = source.export_maps(reader)
    check_maps(maps, source.digest)
    for at in positions(range(len(maps))):
        changed = maps[:at] + bytes([maps[at] ^ 1]) + maps[at + 1 :]
        with pytest.raises(DamagedMaps):
            open_parquet(reader, maps=given(changed))
        with pytest.raises(DamagedMaps):
            check_maps(changed, source.digest)
    for kept in positions(range(0, len(maps), 5)):
        with pytest.raises(DamagedMaps):
            open_parquet(reader, maps=given(maps[:kept]))


def test_maps_of_another_file_are_refused() -> None:
    reader, other = BytesReader(FILES["page headers"]), BytesReader(FILES["no dictionary"])
    maps = open_parquet(other).export_maps(other)
    with pytest.raises(DamagedMaps, match="page maps of a file whose footer has digest"):
        open_parquet(reader, maps=given(maps))


def test_a_column_that_cannot_be_read_has_no_map_and_does_no_harm() -> None:
    data = written(TABLE, compression="snappy", row_group_size=10_000)
    codec_of_id = b"\x18\x02id\x15"  # the column's path, then field 4 of the chunk's metadata
    reader: Any = BytesReader(data.replace(codec_of_id + b"\x02", codec_of_id + b"\x06"))
    source = open_parquet(reader, maps=given(open_parquet(reader).export_maps(reader)))
    assert source.fetch(reader, [(3, 0)], ["text"]).to_pylist() == [{"text": "333"}]


def test_a_file_says_whether_maps_are_its_own() -> None:
    reader = BytesReader(FILES["page headers"])
    maps = open_parquet(reader).export_maps(reader)
    assert open_parquet(reader).has_maps(reader, maps)
    lie = np.array([1, 0, 0, 1, 0, 0, 1, 4, 100, 0, 1], "<i8")  # one chunk of one page: valid checksum, wrong places
    body = maps[8:24] + isal_zlib.compress(lie.tobytes(), 3)
    assert not open_parquet(reader).has_maps(reader, maps[:4] + isal_zlib.crc32(body).to_bytes(4, "little") + body)


def test_page_headers_of_many_chunks_are_walked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BytesReader(FILES["page headers"])
    maps = open_parquet(reader).export_maps(reader)
    monkeypatch.setattr(read_plan, "EXPORTED_TOGETHER", 3)
    assert open_parquet(reader).export_maps(reader) == maps
