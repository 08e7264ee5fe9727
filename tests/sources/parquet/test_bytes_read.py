"""The cost of one row: bytes and rounds, flat columns in one row group of 128 MB."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.base import kernel
from gnomon.sources import open_source
from gnomon.sources.parquet import open_parquet
from tests.sources.readers import FileReader

ROWS = 4 << 20
NESTED_ROWS = 200_000
MEGABYTE = 1 << 20


@pytest.fixture(scope="session", params=[True, False], ids=["page index", "page headers"])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of 8 bytes per value and one of 24, pages of about 1 MB, all in one row group."""
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


@pytest.fixture(scope="session", params=["v1 page index", "v2", "v2 page index"])
def nested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of 5 numbers and a struct of a number and a text, pages of about 64 KB, all in one row group of 14 MB."""
    dice = np.random.default_rng(2)
    numbers = pa.array(dice.integers(0, 1 << 62, 5 * NESTED_ROWS))
    offsets = pa.array(np.arange(0, 5 * NESTED_ROWS + 1, 5, dtype=np.int32))
    text = pa.array([f"text {i}" for i in range(NESTED_ROWS)])
    struct = pa.StructArray.from_arrays([numbers.slice(0, NESTED_ROWS), text], ["number", "text"])
    path = tmp_path_factory.mktemp("nested") / "nested.parquet"
    pq.write_table(
        pa.table({"list": pa.ListArray.from_arrays(offsets, numbers), "struct": struct}),
        path,
        row_group_size=NESTED_ROWS,
        data_page_size=64 << 10,
        use_dictionary=False,
        compression="none",
        data_page_version="2.0" if "v2" in request.param else "1.0",
        write_page_index="page index" in request.param,
    )
    return path


def test_one_row_of_nested_columns_reads_a_page_a_leaf_in_one_round(nested: Path) -> None:
    reader = FileReader(nested)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(0, 0)], source.schema.names)
    reader.forget()
    found = source.fetch(reader, [(123_456, 0)], source.schema.names)
    assert found["struct"].to_pylist()[0]["text"] == "text 123456"
    assert len(found["list"].to_pylist()[0]) == 5
    assert (reader.rounds, len(reader.reads)) == (1, 3)
    assert reader.bytes_read < 3 * (80 << 10)


def test_many_rows_of_a_nested_column_read_its_row_group_once(nested: Path) -> None:
    reader = FileReader(nested)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(0, 0)], ["list"])
    reader.forget()
    rows = range(0, NESTED_ROWS, 100)
    assert source.fetch(reader, [(row, 0) for row in rows], ["list"]).num_rows == len(rows)
    assert (reader.rounds, len(reader.reads)) == (1, 1)


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of few different long texts: a page is small, and the dictionary has 800 KB."""
    texts = pa.array([f"{i:4}" * 2000 for i in range(100)])
    indices = pa.array(np.random.default_rng(3).integers(0, 100, 100_000))
    path = tmp_path_factory.mktemp("lookup") / "lookup.parquet"
    pq.write_table(pa.table({"text": texts.take(indices)}), path, row_group_size=100_000, compression="none")
    return path


def test_a_large_dictionary_is_read_once_for_all_fetches_from_its_row_group(lookup: Path) -> None:
    reader = FileReader(lookup)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(0, 0)], ["text"])
    assert reader.bytes_read > 800_000
    for row in (99_999, 50_000, 1):
        reader.forget()
        source.fetch(reader, [(row, 0)], ["text"])
        if kernel.COMPILED:  # an index, and some bytes of the dictionary
            assert (len(reader.reads), reader.rounds) == (2, 2)
            assert reader.bytes_read < 96 << 10
        else:
            assert len(reader.reads) == 1
            assert reader.bytes_read < 32 << 10


def test_a_small_dictionary_is_read_once_for_all_fetches_from_its_row_group(tmp_path: Path) -> None:
    table = pa.table({"text": [f"{i % 1000:08d}" * 10 for i in range(20_000)]})
    pq.write_table(table, tmp_path / "small.parquet", compression="none")
    reader = FileReader(tmp_path / "small.parquet")
    source = open_source(reader, "parquet")
    source.fetch(reader, [(0, 0)], ["text"])
    assert reader.bytes_read > 80_000
    for row in (19_999, 10_000, 1):
        reader.forget()
        assert source.fetch(reader, [(row, 0)], ["text"])["text"][0] == table["text"][row]
        assert len(reader.reads) == 1
        assert reader.bytes_read < 32 << 10


def test_recorded_maps_spare_the_walk_through_page_headers(big: Path) -> None:
    reader = FileReader(big)
    maps = open_parquet(reader).export_maps(reader)
    assert len(maps) < 4 << 10
    reader.forget()
    source = open_parquet(reader, maps=lambda: maps)
    source.fetch(reader, [(3_141_592, 0)], source.schema.names)
    assert reader.rounds == 2  # the footer; the pages
