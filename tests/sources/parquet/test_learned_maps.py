"""What fetches learned becomes bytes and comes back; bytes of another version, file or length are refused."""

import random
from contextlib import suppress

import pyarrow as pa
import pytest
from isal import isal_zlib

from gnomon.base import kernel
from gnomon.sources import DamagedMaps, DamagedSource, open_mapped
from gnomon.sources.contract import MappedFile
from tests.profiles import examples
from tests.sources.parquet.test_value_maps import coded_table, wide_table, written_coded, written_wide
from tests.sources.readers import BytesReader


def learned(reader: BytesReader, table: pa.Table) -> MappedFile:
    source = open_mapped(reader, "parquet")
    for row in range(0, table.num_rows, table.num_rows // 7):
        source.fetch(reader, [(row, 0)], table.column_names)
    return source


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_a_file_knows_as_much_as_the_one_that_it_learned_from(coded: bool, compression: str) -> None:
    table = coded_table(30_000) if coded else wide_table(1200)
    reader = (written_coded if coded else written_wide)(table, compression=compression, write_page_index=False)
    first = learned(reader, table)
    later = open_mapped(reader, "parquet")
    later.learn(first.export_learned())
    assert later.export_learned() == first.export_learned()
    for row in range(5, table.num_rows, table.num_rows // 9):
        costs = []
        for source in (later, first):
            reader.forget()
            found = source.fetch(reader, [(row, 0)], table.column_names)
            assert found.cast(table.schema).equals(table.slice(row, 1))
            costs.append(reader.bytes_read)
        if kernel.COMPILED and compression != "zstd" and not coded:
            assert costs[0] == costs[1]


def test_bytes_that_are_not_whole_or_of_another_file_are_refused() -> None:
    table = wide_table(1200)
    reader = written_wide(table)
    data = learned(reader, table).export_learned()
    other = wide_table(1100, seed=2)
    wrong = [b"", data + b"\0", b"GPM9" + data[4:], learned(written_wide(other), other).export_learned()]
    dice = random.Random(2)
    wrong += [data[:end] for end in dice.sample(range(len(data)), examples(200))]
    source = open_mapped(reader, "parquet")
    for each in wrong:
        with pytest.raises(DamagedMaps):
            source.learn(each)
    assert source.learned == 0
    assert source.fetch(reader, [(700, 0)], ["html"])["html"][0] == table["html"][700]


ODD = (0, 1, -1, 3, 40, 255, 4096, 65536, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 31), -(1 << 63))


def forged(data: bytes, dice: random.Random) -> bytes:
    """Maps with other numbers and right checksums."""
    digest, rest = data[8:24], data[24:]
    length = int.from_bytes(rest[:4], "little")
    sections = [bytearray(isal_zlib.decompress(part)) for part in (rest[4 : 4 + length], rest[4 + length :])]
    section = dice.choice(sections)
    for _ in range(dice.choice((1, 1, 2, 5))):
        if dice.random() < 0.8:
            at = 8 * dice.randrange(min(len(section) // 8, dice.choice((20, 200, 1 << 30))))
            number = int.from_bytes(section[at : at + 8], "little", signed=True)
            number = dice.choice((*ODD, number + 1, number - 1, number * 2)) % (1 << 64)
            section[at : at + 8] = number.to_bytes(8, "little")
        else:
            section[dice.randrange(len(section))] = dice.randrange(256)
    pages, values = (isal_zlib.compress(bytes(part), 1) for part in sections)
    body = digest + len(pages).to_bytes(4, "little") + pages + values
    return data[:4] + isal_zlib.crc32(body).to_bytes(4, "little") + body


@pytest.mark.parametrize("is_recorded", [False, True], ids=["learned", "recorded"])
@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_maps_with_numbers_that_no_map_has_are_missed(coded: bool, compression: str, is_recorded: bool) -> None:
    """A fetch never ends with an error of its own, and reads nothing outside of the file: `BytesReader` checks that."""
    table = coded_table(6000) if coded else wide_table(300)
    reader = (written_coded if coded else written_wide)(table, compression=compression, write_page_index=False)
    data = learned(reader, table).export_learned()
    dice = random.Random(f"{coded} {compression} {is_recorded}")
    for _ in range(examples(100)):
        maps = forged(data, dice)
        source = open_mapped(reader, "parquet")
        try:
            if is_recorded:
                source = open_mapped(reader, "parquet", None, lambda maps=maps: maps)
            else:
                source.learn(maps)
        except DamagedMaps:
            continue
        for row in dice.sample(range(table.num_rows), 3):
            with suppress(DamagedSource):  # a forged place of another page of the same size and rows
                source.fetch(reader, [(row, 0)], table.column_names)
        source.export_learned()
