"""Every constant and byte rule of an index file (docs/internals/btree-format.md). All byte arithmetic on index files is
here.

Offsets are bytes from the start of the file. Only a link counts from the file's end.
"""

import json
import os
import re
from dataclasses import dataclass

from isal import isal_zlib

from gnomon.base.errors import Action
from gnomon.base.varints import LONGEST_VARINT, decode_signed, encode_signed
from gnomon.btree.errors import BTreeError, DamagedIndexFile

MAGIC = b"Obj\x01"
SYNC_BYTES = 16  # the marker after the header and after each block

# Header metadata. The first four are Dione's; Dione's readers ignore the others.
SCHEMA_KEY = "avro.schema"
CODEC_KEY = "avro.codec"  # absent means null
KEY_VALUE_KEY = "btree.spec.kv"  # key fields joined by a comma, a bar, value fields joined by a comma
DATA_BYTES_KEY = "data_bytes"  # decimal text: length of all blocks
UPPER_BYTES_KEY = "gnomon.upper_bytes"  # decimal text: length of the blocks above the leaves, which come first
ENTRIES_KEY = "gnomon.entries"  # decimal text: records in the file
NODE_BYTES_KEY = "gnomon.node_bytes"  # decimal text: length of the longest block
SPLIT_RUNS_KEY = "gnomon.split_runs"  # decimal text: nodes that end between two equal keys
UPPER_CRC_KEY = "gnomon.upper_crc32"  # eight hex digits: CRC-32 of the blocks above the leaves
CHECKSUM_KEY = "gnomon.checksum"  # the checksum that each payload carries in addition to that of Avro's codec
HEADER_CRC_KEY = "gnomon.header_crc32"  # eight hex digits: CRC-32 of the header without this key
SEALED_KEYS = {HEADER_CRC_KEY, CHECKSUM_KEY, UPPER_CRC_KEY, SPLIT_RUNS_KEY}  # a header with any of these has the CRC

LINK_FIELD = "metadata"  # last field of each record: null, or the link to the child node

NODE_LIMIT = 64 * 1024 * 1024  # bytes of records in one node; a longer run of equal keys is split into children
NODE_RECORDS = 1 << 20  # records in one node; more are split likewise
ENTRY_LIMIT = 4 * 1024 * 1024  # bytes of one written record: a tree exists for any number of records of this length
PAYLOAD_LIMIT = NODE_LIMIT + NODE_LIMIT // 8  # bytes of a block's payload: incompressible records may grow
HEADER_LIMIT = 1024 * 1024  # bytes of a header
METADATA_LIMIT = 1000  # entries of a header
BLOCK_HEAD_BYTES = 2 * LONGEST_VARINT  # the longest record count and payload length
CRC_BYTES = 4  # a CRC-32 of a block's records, big-endian, at the end of its payload

NULL_LINK = b"\x00"  # branch 0 of ["null", "long"]
LINK_BRANCH = b"\x02"  # branch 1


DECIMAL_TEXT = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True)
class Header:
    """The head of an index file."""

    metadata: dict[str, bytes]
    sync: bytes
    end: int  # offset of the first block

    def number(self, key: str) -> int | None:
        """A metadata value that is a decimal text, or None where the key is absent."""
        text = self.metadata.get(key)
        if text is None:
            return None
        if not DECIMAL_TEXT.fullmatch(text):
            raise ValueError(f"expected a decimal number in {key}, found {text[:80]!r}")
        return int(text)


def sync_marker(given: bytes | None) -> bytes:
    """The given marker, or a random one."""
    if given is not None and len(given) != SYNC_BYTES:
        raise BTreeError("sync marker", expected=f"{SYNC_BYTES} bytes", found=len(given))
    return given if given is not None else os.urandom(SYNC_BYTES)


def encode_header(metadata: dict[str, bytes], sync: bytes) -> bytes:
    """The bytes before the first block."""
    parts = [MAGIC, encode_signed(len(metadata))]
    for key, value in metadata.items():
        name = key.encode()
        parts += [encode_signed(len(name)), name, encode_signed(len(value)), value]
    return b"".join([*parts, b"\x00", sync])


def sealed(metadata: dict[str, bytes], sync: bytes) -> dict[str, bytes]:
    """The metadata with the CRC of its header. The CRC comes first, so that a reader has it before any damaged byte."""
    others = {key: value for key, value in metadata.items() if key != HEADER_CRC_KEY}
    return {HEADER_CRC_KEY: crc_text(encode_header(others, sync)), **others}


def crc_text(*parts: bytes | memoryview) -> bytes:
    """The CRC-32 of these bytes as eight hex digits."""
    crc = 0
    for part in parts:
        crc = isal_zlib.crc32(part, crc)
    return b"%08x" % crc


def decode_header(data: bytes, path: str, action: Action = Action.BUILD_FULL) -> Header | None:
    """The header at the start of a file, or None when `data` ends before the header does."""
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise DamagedIndexFile("", path, 0, expected=f"an Avro file beginning {MAGIC!r}", found=data[:4], action=action)
    at = len(MAGIC)
    metadata: dict[str, bytes] = {}
    try:
        while True:
            start = at
            count, at = decode_signed(data, at)
            if count == 0:
                break
            if count < 0:  # Avro allows a block of a map to state its size in bytes
                count = -count
                _, at = decode_signed(data, at)
            if len(metadata) + count > METADATA_LIMIT:
                raise DamagedIndexFile(f"a header of more than {METADATA_LIMIT} entries", path, start, action=action)
            for _ in range(count):
                start = at
                name, at = _sized(data, at, path, action)
                value, at = _sized(data, at, path, action)
                metadata[name.decode()] = value
    except IndexError:
        return None
    except ValueError as error:
        raise DamagedIndexFile(f"the header is not an Avro map ({error})", path, start, action=action) from None
    if at + SYNC_BYTES > len(data):
        return None
    sync = data[at : at + SYNC_BYTES]
    is_sealed = not SEALED_KEYS.isdisjoint(metadata)
    if is_sealed and metadata != sealed(metadata, sync):
        raise DamagedIndexFile(f"the header does not match its {HEADER_CRC_KEY}", path, 0, action=action)
    return Header(metadata, sync, at + SYNC_BYTES)


def _sized(data: bytes, at: int, path: str, action: Action) -> tuple[bytes, int]:
    length, after = decode_signed(data, at)
    if not 0 <= length <= HEADER_LIMIT:
        raise DamagedIndexFile("", path, at, expected="a length in the header", found=length, action=action)
    if after + length > len(data):
        raise IndexError
    return data[after : after + length], after + length


def encode_block(count: int, payload: bytes, sync: bytes) -> bytes:
    """One node: record count, length of the (compressed) payload, payload, sync marker."""
    return b"".join([encode_signed(count), encode_signed(len(payload)), payload, sync])


@dataclass(slots=True)
class BlockFrame:
    """The parts of a block: offsets from the start of the file."""

    count: int
    payload: int
    payload_bytes: int
    end: int  # offset after the sync marker


def decode_block_frame(
    head: bytes, offset: int, file_bytes: int, path: str, action: Action = Action.BUILD_FULL
) -> BlockFrame:
    """The frame of the block at `offset`, from its first bytes. The lengths are checked against the file."""
    try:
        count, at = decode_signed(head, 0)
        length, at = decode_signed(head, at)
    except (IndexError, ValueError):
        raise DamagedIndexFile("", path, offset, expected="a block's record count and length", action=action) from None
    payload = offset + at
    end = payload + length + SYNC_BYTES
    if not 1 <= count <= NODE_RECORDS or not 1 <= length <= PAYLOAD_LIMIT or end > file_bytes:
        raise DamagedIndexFile(
            "",
            path,
            offset,
            expected="a block",
            found=f"one of {count} records and {length} bytes in a file of {file_bytes} bytes",
            action=action,
        )
    return BlockFrame(count, payload, length, end)


def encode_key_value_spec(keys: list[str], values: list[str]) -> bytes:
    """The header text of KEY_VALUE_KEY."""
    return f"{','.join(keys)}|{','.join(values)}".encode()


def decode_key_value_spec(text: bytes, path: str, action: Action = Action.BUILD_FULL) -> tuple[list[str], list[str]]:
    """The key and value field names in the text of KEY_VALUE_KEY."""
    keys, bar, values = text.decode(errors="replace").partition("|")
    if not bar or not keys or not values:
        raise DamagedIndexFile(
            f"{KEY_VALUE_KEY} names no key fields or no value fields: {text[:80]!r}", path, 0, action=action
        )
    return keys.split(","), values.split(",")


def decode_schema(text: bytes, path: str, action: Action = Action.BUILD_FULL) -> dict[str, object]:
    """The record schema in the text of SCHEMA_KEY."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedIndexFile(f"{SCHEMA_KEY} is not JSON ({error})", path, 0, action=action) from None
    if not isinstance(schema, dict):
        raise DamagedIndexFile(f"{SCHEMA_KEY} is not a record", path, 0, action=action)
    return schema
