"""The records of a block: unpacked, and checked against what the block's head says of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sources.avro.codecs import unpack
from sources.avro.container import BLOCK_LIMIT, Block
from sources.avro.errors import Beyond, Malformed
from sources.errors import DamagedSource, UnsupportedFormat

ROWS_WITHOUT_BYTES = 1 << 24  # that a block may have: nothing in it bounds their number


@contextmanager
def at_block(path: str, offset: int) -> Iterator[None]:
    """Give path and offset to what goes wrong within."""
    try:
        yield
    except Malformed as error:
        raise DamagedSource(f"the block cannot be decoded: {error}", path, offset) from error
    except Beyond as error:
        raise UnsupportedFormat(f"the block is not decoded: {error}", path, offset) from error


def unpack_records(codec: str, block: Block, payload: bytes, least: int, path: str) -> bytes:
    """The records, `least` bytes each at least."""
    with at_block(path, block.offset):
        records = unpack(codec, payload, BLOCK_LIMIT)
        if least and block.rows * least > len(records):
            raise Malformed(f"{block.rows} rows in {len(records)} bytes")
        if block.rows > max(ROWS_WITHOUT_BYTES, len(records)):
            raise Beyond(f"{block.rows} rows in {len(records)} bytes")
        if not block.rows and records:
            raise Malformed(f"no rows in {len(records)} bytes")
    return records


def check_end(block: Block, records: bytes, position: int, path: str) -> None:
    """That no bytes are left behind the last row."""
    if position != len(records):
        message = f"{len(records) - position} bytes are left behind the last of the block's {block.rows} rows"
        raise DamagedSource(message, path, block.offset)
