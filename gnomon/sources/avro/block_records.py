"""The records of a block: decompressed, and checked against the block's header."""

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.sources.avro.codecs import unpack
from gnomon.sources.avro.container import BLOCK_LIMIT, Block
from gnomon.sources.avro.errors import LimitExceeded, Malformed
from gnomon.sources.errors import DamagedSource, UnsupportedFormat

ROWS_WITHOUT_BYTES = 1 << 24  # most rows of a block whose rows take no bytes: no byte count bounds their number


@contextmanager
def block_errors(path: str, offset: int) -> Iterator[None]:
    """Convert Malformed and LimitExceeded to errors with path and offset of the block."""
    try:
        yield
    except Malformed as error:
        raise DamagedSource(f"the block cannot be decoded: {error}", path, offset) from error
    except LimitExceeded as error:
        raise UnsupportedFormat(f"the block exceeds a limit: {error}", path, offset) from error


def unpack_records(codec: str, block: Block, payload: bytes, least: int, path: str) -> bytes:
    """Decompress the records of a block. Each has at least `least` bytes."""
    with block_errors(path, block.offset):
        records = unpack(codec, payload, BLOCK_LIMIT)
        if least and block.rows * least > len(records):
            raise Malformed(f"{block.rows} rows in {len(records)} bytes")
        if block.rows > max(ROWS_WITHOUT_BYTES, len(records)):
            raise LimitExceeded(f"{block.rows} rows in {len(records)} bytes")
        if not block.rows and records:
            raise Malformed(f"no rows in {len(records)} bytes")
    return records


def check_end(block: Block, records: bytes, position: int, path: str) -> None:
    """DamagedSource if bytes follow the last row of a block."""
    if position != len(records):
        message = f"{len(records) - position} bytes follow the last of the block's {block.rows} rows"
        raise DamagedSource(message, path, block.offset)
