"""The chunks of ORC streams: what is copied and unpacked of them, and that a row alone is what it is in a scan."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sources import open_source
from tests.sources.orc_files import written
from tests.sources.readers import BytesReader

CODECS = ("uncompressed", "zlib", "snappy", "lz4", "zstd")


class Counted(bytes):
    """Bytes that count what is copied of them."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        if isinstance(part, bytes):
            Counted.copied += len(part)
        return part


class CountingReader(BytesReader):
    def _bytes(self, offset: int, length: int) -> bytes:
        return Counted(super()._bytes(offset, length))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_were_read_are_copied_once(codec: str) -> None:
    """Not the rest of them with each chunk, which takes the square of their number."""
    dice = np.random.default_rng(1)
    table = pa.table({"text": [dice.bytes(1500).hex() for _ in range(1000)]})
    reader = CountingReader(written(table, compression=codec, row_index_stride=1000))
    source = open_source(reader, "orc")
    for rows in ([999], range(1000)):
        Counted.copied = 0
        reader.forget()
        assert source.fetch(reader, [(row, 0) for row in rows], ["text"]).num_rows == len(rows)
        assert reader.bytes_read > 1_000_000
        assert Counted.copied < 1.1 * reader.bytes_read
    Counted.copied = 0
    reader.forget()
    assert sum(batch.num_rows for batch in source.scan(reader, ["text"])) == 1000
    assert Counted.copied < 1.1 * reader.bytes_read
