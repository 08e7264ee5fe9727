"""Page maps: the OffsetIndex and the page headers agree, and both are checked."""

from dataclasses import replace

import numpy as np
import pytest

from gnomon.sources import DamagedSource
from gnomon.sources.parquet import page_map, thrift
from gnomon.sources.parquet.footer import Chunk, ChunkPlace, parse_footer
from gnomon.sources.parquet.page_map import PageMap, from_offset_index, map_pages
from tests.sources.parquet_files import flat_table, written
from tests.sources.readers import BytesReader


def places_of(data: bytes) -> list[ChunkPlace]:
    length = int.from_bytes(data[-8:-4], "little")
    footer = parse_footer(data[-8 - length : -8])
    return [
        ChunkPlace("lake/a", column.name, ordinal, group.rows, group.chunks[leaf.ordinal])
        for ordinal, group in enumerate(footer.row_groups)
        for column in footer.columns
        for leaf in column.leaves
    ]


def without_index(place: ChunkPlace) -> ChunkPlace:
    return place._replace(chunk=place.chunk._replace(index_offset=0, index_length=0))


def map_of(data: bytes, places: list[ChunkPlace]) -> list[PageMap]:
    return map_pages(BytesReader(data), places, len(data), slack=0)


def same(left: PageMap, right: PageMap) -> bool:
    return left.dictionary == right.dictionary and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in ("offsets", "lengths", "first_rows")
    )


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page_size", [64, 1 << 20])
def test_page_headers_give_the_map_the_offset_index_gives(version: str, page_size: int) -> None:
    data = written(flat_table(), write_page_index=True, data_page_version=version, data_page_size=page_size)
    places = places_of(data)
    indexed = map_of(data, places)
    walked = map_of(data, [without_index(place) for place in places])
    assert all(same(left, right) for left, right in zip(indexed, walked, strict=True))
    assert all(found.needs_dictionary is None for found in indexed)
    assert {bool(found.needs_dictionary.any()) for found in walked if found.needs_dictionary is not None} == {
        True,
        False,
    }


def test_all_offset_indexes_take_one_round_and_headers_of_all_columns_are_walked_in_step() -> None:
    data = written(flat_table(20_000), write_page_index=True, row_group_size=20_000, data_page_size=2000)
    places = places_of(data)
    reader = BytesReader(data)
    map_pages(reader, places, len(data), slack=0)
    assert reader.rounds == 1
    reader.forget()
    walked = map_pages(reader, [without_index(place) for place in places], len(data), slack=0)
    most = max(len(found.offsets) for found in walked)
    assert most > 20
    assert reader.rounds <= most + 2


class FarReader(BytesReader):
    is_remote = True


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_far_away_chunks_are_read_whole_in_one_round_in_pieces(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(flat_table(20_000), row_group_size=20_000, data_page_size=2000, data_page_version=version)
    places = places_of(data)
    monkeypatch.setattr(page_map, "PIECE", 10_000)
    far = FarReader(data)
    found = map_pages(far, places, len(data), slack=0)
    assert far.rounds == 1
    assert max(length for _, length in far.reads) == 10_000
    assert sum(length for _, length in far.reads) == sum(place.chunk.compressed for place in places)
    assert all(same(left, right) for left, right in zip(found, map_of(data, places), strict=True))


def test_far_away_headers_of_chunks_that_are_too_large_together_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(flat_table(20_000), row_group_size=20_000, data_page_size=2000)
    places = places_of(data)
    monkeypatch.setattr(page_map, "FAR_BYTES", sum(place.chunk.compressed for place in places) - 1)
    near, far = BytesReader(data), FarReader(data)
    found = map_pages(far, places, len(data), slack=0)
    assert all(same(left, right) for left, right in zip(found, map_pages(near, places, len(data), 0), strict=True))
    assert far.reads == near.reads


@pytest.mark.parametrize("statistics", [1, 5000])
def test_a_header_longer_than_the_first_look_is_looked_at_again(statistics: int) -> None:
    table = flat_table().set_column(2, "text", [[f"{i}" * statistics for i in range(300)]])
    data = written(table, use_dictionary=False, row_group_size=300, data_page_size=1 << 20, write_batch_size=100)
    place = without_index(places_of(data)[2])
    (found,) = map_of(data, [place])
    assert found.first_rows[-1] == 300


LOCATIONS = [(4, 10, 0), (14, 10, 50), (24, 80, 100)]
BAD_LOCATIONS = {
    "none": [],
    "first row is not 0": [(4, 100, 1)],
    "rows fall": [(4, 10, 0), (14, 10, 50), (24, 80, 49)],
    "rows beyond the row group": [(4, 10, 0), (14, 90, 129)],
    "pages overlap": [(4, 11, 0), (14, 90, 50)],
    "lengths without page headers": [(4, 8, 0), (14, 8, 50), (24, 78, 100)],
    "bytes after the last page": [(4, 10, 0), (14, 80, 50)],
    "page of no bytes": [(4, 0, 0), (4, 100, 50)],
    "before the chunk": [(3, 101, 0)],
    "beyond the chunk": [(4, 90, 0), (94, 11, 50)],
    "beyond 64 bits": [(4, 10, 0), (1 << 68, 10, 50)],
}
PLACE = ChunkPlace("lake/a", "c", 0, 128, Chunk(1, 0, 128, 100, 100, 4, 0, 0, 0, None))


def offset_index(locations: list[tuple[int, int, int]]) -> bytes:
    entries = [
        thrift.struct([(i + 1, thrift.I64, thrift.integer(value)) for i, value in enumerate(location)])
        for location in locations
    ]
    return thrift.struct([(1, thrift.LIST, thrift.array(thrift.STRUCT, entries))])


def test_rows_fall_on_the_page_that_holds_them_and_never_on_an_empty_one() -> None:
    found = from_offset_index(offset_index([*LOCATIONS[:2], (24, 10, 100), (34, 70, 100)]), PLACE)
    assert found is not None
    assert found.pages_of(np.array([0, 49, 50, 99, 100, 127])).tolist() == [0, 0, 1, 1, 3, 3]
    assert found.dictionary is None


@pytest.mark.parametrize("locations", BAD_LOCATIONS.values(), ids=BAD_LOCATIONS)
def test_an_offset_index_that_cannot_be_true_is_not_used(locations: list[tuple[int, int, int]]) -> None:
    assert from_offset_index(offset_index(locations), PLACE) is None


def test_an_offset_index_that_is_not_one_is_not_used() -> None:
    for data in (b"", b"\xff" * 30, thrift.struct([(1, thrift.LIST, thrift.array(thrift.I32, [b"\x02"]))])):
        assert from_offset_index(data, PLACE) is None


def test_pages_that_do_not_add_up_to_the_row_group_are_damage() -> None:
    data = written(flat_table(), row_group_size=300)
    place = without_index(places_of(data)[0])
    for rows, message in ((301, "pages of 300 rows, the row group has 301"), (299, "the row group has 299")):
        with pytest.raises(DamagedSource, match=message) as caught:
            map_of(data, [place._replace(rows=rows)])
        assert caught.value.path == "lake/a"
        assert caught.value.offset is not None


def test_cache_bytes_of_a_map_follow_its_pages() -> None:
    found = from_offset_index(offset_index(LOCATIONS), PLACE)
    assert found is not None
    longer = replace(found, offsets=np.arange(1000))
    arrays = sum(getattr(longer, name).nbytes for name in ("offsets", "lengths", "first_rows"))
    assert longer.cache_bytes > arrays
