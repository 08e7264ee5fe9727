"""What one row costs: counted bytes and rounds on one row group of 128 MB."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sources import open_source
from tests.sources.readers import FileReader

ROWS = 4 << 20
MEGABYTE = 1 << 20


@pytest.fixture(scope="session", params=[True, False], ids=["page index", "page headers"])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of 8 bytes a value and one of 24, pages of about 1 MB, all in one row group."""
    dice = np.random.default_rng(1)
    table = pa.table(
        {
            "a": dice.integers(0, 1 << 62, ROWS),
            "b": pa.Array.from_buffers(pa.binary(24), ROWS, [None, pa.py_buffer(dice.bytes(24 * ROWS))]),
        }
    )
    path = tmp_path_factory.mktemp("big") / "big.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=ROWS,
        data_page_size=MEGABYTE,
        max_rows_per_page=ROWS,
        use_dictionary=False,
        compression="none",
        write_page_index=request.param,
        write_batch_size=1 << 14,
    )
    assert path.stat().st_size > 128 * MEGABYTE
    return path


def test_one_row_of_a_row_group_of_128_mb_reads_a_page_a_column_in_one_round(big: Path) -> None:
    reader = FileReader(big)
    source = open_source(reader, "parquet")
    assert reader.bytes_read <= 64 << 10
    source.fetch(reader, [(0, 0)], source.schema.names)
    reader.forget()
    row = 3_141_592
    source.fetch(reader, [(row, 0)], source.schema.names)
    assert reader.bytes_read < 3 * MEGABYTE
    assert (reader.rounds, len(reader.reads)) == (1, 2)
    reader.forget()
    source.fetch(reader, [(row, 0)], ["a"])
    assert reader.bytes_read < 1.1 * MEGABYTE


def test_mapping_the_pages_of_a_row_group_reads_little(big: Path) -> None:
    reader = FileReader(big)
    source = open_source(reader, "parquet")
    reader.forget()
    source.fetch(reader, [(0, 0)], ["a"])
    assert reader.bytes_read < 1.1 * MEGABYTE + (32 << 10)


def test_a_thousand_rows_of_one_page_read_it_once(big: Path) -> None:
    reader = FileReader(big)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(0, 0)], ["a"])
    reader.forget()
    source.fetch(reader, [(row, 0) for row in range(1000, 2000)], ["a"])
    assert len(reader.reads) == 1
    assert reader.bytes_read < 1.1 * MEGABYTE


def test_the_cache_holds_maps_and_not_pages(big: Path) -> None:
    reader = FileReader(big)
    source = open_source(reader, "parquet")
    for row in range(0, ROWS, ROWS // 20):
        source.fetch(reader, [(row, 0)], source.schema.names)
    assert source.cache_bytes < 64 << 10
