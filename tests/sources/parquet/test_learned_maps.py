"""What fetches learned becomes bytes and comes back; bytes of another version, file or length are refused."""

import random

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.sources import DamagedMaps, open_mapped
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
