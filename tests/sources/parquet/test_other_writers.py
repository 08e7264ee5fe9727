"""Features of particular writers of Parquet files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.sources import open_source
from gnomon.sources.parquet.page_header import DATA_V2, read_header
from tests.sources.parquet.test_page_map import places_of
from tests.sources.parquet_files import flat_table, written
from tests.sources.readers import BytesReader

NEW, OLD = b"parquet-cpp-arrow version 26.0.1", b"parquet-cpp version 1.5.1-SNAPSH"
LISTS = pa.table({"words": [None if i % 6 == 5 else [f"word {i % 3}", None] * (i % 4) for i in range(300)]})


def as_of_arrow_two(table: pa.Table, codec: str) -> bytes:
    """Pages of version 2 whose values are declared as not compressed, and are compressed."""
    options = {"compression": codec, "use_dictionary": False, "write_statistics": False, "row_group_size": 1 << 20}
    data = bytearray(written(table, data_page_version="2.0", data_page_size=1 << 20, **options))
    for chunk in [place.chunk for place in places_of(bytes(data))]:
        header = read_header(bytes(data), chunk.start)
        assert header.kind == DATA_V2
        if header.values_compressed:
            at = chunk.start + header.length - 5
            assert data[at : at + 3] == b"\x11\x1c\0"  # is_compressed, true; no statistics
            data[at] = 0x12
        else:
            assert header.uncompressed == header.definition_bytes + header.repetition_bytes  # and no value
    made_by = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.created_by.encode()
    old = OLD.ljust(len(made_by), b" ")[: len(made_by)]
    assert data.count(made_by) == 1
    return bytes(data.replace(made_by, old))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli"])
@pytest.mark.parametrize("table", [flat_table(), LISTS], ids=["flat", "nested"])
def test_rows_of_writers_that_deny_their_compression_come_right(table: pa.Table, codec: str) -> None:
    reader = BytesReader(as_of_arrow_two(table, codec))
    source = open_source(reader, "parquet")
    for row in (0, 77, 299):
        found = source.fetch(reader, [(row, 0)], table.column_names)
        assert found.to_pylist() == table.slice(row, 1).to_pylist()
    assert source.fetch(reader, [(row, 0) for row in range(300)], table.column_names).to_pylist() == table.to_pylist()
