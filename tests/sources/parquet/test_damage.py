"""Damaged Parquet files: an error with the place, never a wrong row, never a crash."""

import random

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.sources import DamagedSource, SourceError, open_source
from gnomon.sources.parquet.footer import Chunk
from tests.profiles import examples, positions
from tests.sources.parquet.test_page_map import places_of
from tests.sources.parquet_files import ROWS, flat_table, nested_table, written
from tests.sources.readers import BytesReader

TABLE = flat_table()
CHECKED = written(TABLE, write_page_checksum=True, write_page_index=True, row_group_size=150)
PLAIN = written(TABLE, write_page_index=True, row_group_size=150, use_dictionary=False)


def fetched(data: bytes) -> list[dict[str, object]]:
    reader = BytesReader(data, "lake/damaged")
    source = open_source(reader, "parquet")
    return source.fetch(reader, [(row, 0) for row in range(ROWS)], TABLE.column_names).to_pylist()


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


@pytest.mark.slow
def test_a_flipped_bit_in_a_page_with_a_checksum_never_gives_a_wrong_row() -> None:
    rows = TABLE.to_pylist()
    errors: list[tuple[Chunk, SourceError]] = []
    tried = 0
    for chunk in [place.chunk for place in places_of(CHECKED)]:
        chosen = positions(range(chunk.start, chunk.start + chunk.compressed, 5))
        tried += len(chosen)
        for position in chosen:
            try:
                assert fetched(flipped(CHECKED, position)) == rows  # a bit without effect, as in statistics
            except SourceError as error:
                errors.append((chunk, error))
    assert len(errors) > tried / 2
    for chunk, error in errors:
        assert error.path == "lake/damaged"
        assert error.offset is not None
        assert chunk.start <= error.offset <= chunk.start + chunk.compressed  # at its end, a page is missing


def test_a_wrong_checksum_is_reported_with_column_row_group_and_offset() -> None:
    chunk = places_of(CHECKED)[0].chunk
    with pytest.raises(DamagedSource, match=r"column id: row group 0: page checksum is .*, the header says"):
        fetched(flipped(CHECKED, chunk.start + chunk.compressed - 1))


@pytest.mark.parametrize("row", [0, 100, 298, 299])
def test_a_wrong_length_is_noticed_in_the_row_it_is_of(row: int) -> None:
    texts = [f"{i:04}" * 5 for i in range(ROWS)]
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    data = written(pa.table({"text": texts}), row_group_size=ROWS, data_page_size=1 << 20, **options)
    at = data.index(texts[row].encode()) - 4
    for length in (19, 21, 16, 0, 1 << 30):
        reader = BytesReader(data[:at] + length.to_bytes(4, "little") + data[at + 4 :], "lake/damaged")
        source = open_source(reader, "parquet")
        with pytest.raises(DamagedSource, match="lake/damaged at byte 4: column text: row group 0: cannot be deco"):
            source.fetch(reader, [(row, 0)], ["text"])


@pytest.mark.skipif(not kernel.COMPILED, reason="pyarrow decodes whole pages where loops are in Python")
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_level_that_became_null_is_noticed_by_the_bytes_after_the_values(version: str) -> None:
    numbers = [None if 100 <= i < 103 else i * 7 for i in range(ROWS)]
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False, "data_page_version": version}
    data = written(pa.table({"n": numbers}), row_group_size=ROWS, data_page_size=1 << 20, **options)
    first = data.index((0).to_bytes(8, "little") + (7).to_bytes(8, "little"))
    flips, before = 0, bytes(data)
    for at in range(first - 8, first):  # the last bytes of the levels: runs of 1, but for the packed rows 96 to 103
        for bit in range(8):
            damaged = bytearray(before)
            damaged[at] ^= 1 << bit
            reader = BytesReader(bytes(damaged), "lake/damaged")
            try:
                found = open_source(reader, "parquet").fetch(reader, [(5, 0), (ROWS - 1, 0)], ["n"])
            except SourceError:
                flips += 1
            else:
                assert found["n"].to_pylist() == [35, (ROWS - 1) * 7]
    assert flips > 16


def test_scan_verifies_checksums_too() -> None:
    chunk = places_of(CHECKED)[0].chunk
    reader = BytesReader(flipped(CHECKED, chunk.start + chunk.compressed - 1), "lake/damaged")
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource, match="lake/damaged at byte 4: row group 0, columns id: cannot be decoded"):
        list(source.scan(reader, ["id"]))


def test_a_row_group_read_verifies_checksums_too() -> None:
    data = written(nested_table(), write_page_checksum=True)
    chunk = places_of(data)[1].chunk
    reader = BytesReader(flipped(data, chunk.start + chunk.compressed - 1), "lake/damaged")
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource, match="column numbers: row group 0: cannot be decoded"):
        source.fetch(reader, [(0, 0)], ["numbers"])


def test_damage_to_one_column_leaves_the_others_readable() -> None:
    chunk = places_of(CHECKED)[0].chunk
    reader = BytesReader(flipped(CHECKED, chunk.start + chunk.compressed - 1))
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(0, 0)], ["score"]).to_pylist() == [{"score": None}]


def test_a_page_index_that_disagrees_with_the_pages_is_not_used() -> None:
    """Two pages of the map exchange their rows, which contradicts the pages' own headers."""
    place = places_of(PLAIN)[0]
    index = PLAIN[place.chunk.index_offset : place.chunk.index_offset + place.chunk.index_length]
    sixteen = b"\x16\x40"  # first_row_index 32, the third page's
    assert sixteen in index
    changed = index.replace(sixteen, b"\x16\x42")
    start = place.chunk.index_offset
    assert fetched(PLAIN[:start] + changed + PLAIN[start + len(index) :]) == TABLE.to_pylist()


def test_a_page_that_claims_to_grow_beyond_reason_is_refused_before_it_is_decoded() -> None:
    data = written(TABLE.select(["text"]), use_dictionary=False, compression="snappy", row_group_size=ROWS)
    start = places_of(data)[0].chunk.start
    assert data[start : start + 3] == b"\x15\x00\x15"  # page type 0, then the uncompressed size
    size = data[start + 3 : start + 5]
    huge = data[: start + 3] + b"\xfe\xff\xff\xff\x0f" + data[start + 3 + len(size) :]
    reader = BytesReader(huge, "lake/bomb")
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource, match="lake/bomb at byte 4: column text: row group 0: page"):
        source.fetch(reader, [(0, 0)], ["text"])


@pytest.mark.parametrize("data", [CHECKED, PLAIN], ids=["checksums", "plain"])
def test_random_damage_ends_in_an_error_of_ours_or_in_rows(data: bytes) -> None:
    dice = random.Random(7)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for _ in range(examples(1500)):
        at = dice.randrange(len(data) - footer, len(data)) if dice.random() < 0.7 else dice.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] = dice.randrange(256)
        reader = BytesReader(bytes(damaged), "lake/damaged")
        try:
            source = open_source(reader, "parquet")
            names = list(dict.fromkeys(source.schema.names))
            source.fetch(reader, [(row, 0) for row in range(0, ROWS, 41)], names)
            for _ in source.scan(reader, names[:1]):
                pass
        except SourceError as error:
            assert error.path == "lake/damaged"  # noqa: PT017 - rows are as good an end


def test_a_file_cut_anywhere_is_refused() -> None:
    for kept in positions(range(0, len(PLAIN), 97)):
        with pytest.raises(DamagedSource, match="lake/damaged"):
            fetched(PLAIN[:kept])


def in_one_page(table: pa.Table) -> bytes:
    return written(table, use_dictionary=False, compression="none", row_group_size=1 << 20, data_page_size=1 << 20)


def scan_error(data: bytes) -> str:
    reader = BytesReader(data, "lake/damaged")
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource, match="lake/damaged at byte 4: ") as caught:
        list(source.scan(reader, source.schema.names))
    for pointer in range(source.rows):
        with pytest.raises(DamagedSource, match="lake/damaged at byte 4: "):
            source.fetch(reader, [(pointer, 0)], source.schema.names)
    return str(caught.value)


def test_keys_and_values_of_a_map_that_contradict_each_other_are_an_error() -> None:
    data = in_one_page(pa.table({"m": pa.array([[(i, i)] for i in range(8)], pa.map_(pa.int32(), pa.int32()))}))
    levels = b"\x02\0\0\0\x10\0\x02\0\0\0\x10\x02"  # of the keys: eight rows, a key in each
    assert data.count(levels) == 1
    error = scan_error(data.replace(levels, levels[:-1] + b"\0"))
    assert "row group 0, columns m: cannot be decoded: the leaves of 'm' contradict each other" in error


def test_a_row_too_many_in_a_row_group_is_an_error() -> None:
    data = in_one_page(pa.table({"l": [[i, i] for i in range(8)], "id": range(8)}))
    levels = b"\x03\0\0\0\x05\xaa\xaa"  # every second entry begins a row
    assert data.count(levels) == 1
    reader = BytesReader(data.replace(levels, levels[:-2] + b"\xa8\xaa"), "lake/damaged")
    with pytest.raises(DamagedSource, match="lake/damaged at byte 4: column l: row group 0: 9 rows read"):
        list(open_source(reader, "parquet").scan(reader, ["l"]))
    with pytest.raises(DamagedSource, match="lake/damaged at byte 4: row group 0, columns id, l: cannot be decoded"):
        list(open_source(reader, "parquet").scan(reader, ["l", "id"]))
