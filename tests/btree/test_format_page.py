"""docs/internals/btree-format.md is right: its constants, its example, its types, its limits."""

import re
from pathlib import Path

import pytest

from gnomon.base.hashes_python import SEED
from gnomon.base.varints import LONGEST_VARINT
from gnomon.btree import Column, EntrySchema
from gnomon.btree import format as fmt
from gnomon.btree.blocks import FIRST_READ_BYTES, UPPER_READ_BYTES
from gnomon.btree.codecs import CHECKSUMS, COMPRESSORS, DECOMPRESSORS
from gnomon.btree.geometry import GROWING_BYTES, LONG_INNER_BYTES, MOST_LEAST_RECORDS, NODE_BYTES
from gnomon.btree.hashing import HASH_NAME
from gnomon.btree.key_types import is_key_type, key_type
from tests.btree.files import Entry, header_of, write
from tests.btree.tree_model import tree_of

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "btree-format.md").read_text(encoding="utf-8")
CONSTANTS = [name for name in vars(fmt) if name.isupper()]


@pytest.mark.parametrize("name", CONSTANTS)
def test_each_constant_of_the_format_is_on_the_page(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


def test_each_header_key_stands_beside_its_constant() -> None:
    for name in CONSTANTS:
        if name.endswith("_KEY"):
            assert f"| `{getattr(fmt, name)}` | {name} |" in PAGE


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert fmt.SYNC_BYTES == 16
    assert (LONGEST_VARINT, fmt.BLOCK_HEAD_BYTES) == (10, 20)
    assert (fmt.NODE_LIMIT, fmt.HEADER_LIMIT, fmt.METADATA_LIMIT) == (64 << 20, 1 << 20, 1000)
    assert (fmt.NODE_RECORDS, fmt.CRC_BYTES) == (1 << 20, 4)
    assert (NODE_BYTES, MOST_LEAST_RECORDS, LONG_INNER_BYTES, GROWING_BYTES) == (8 << 10, 64, 16 << 20, 1 << 20)
    assert (FIRST_READ_BYTES, UPPER_READ_BYTES) == (32 << 10, 16 << 20)
    assert f"{tree_of(100_000_000, 100).nodes:,} nodes" in PAGE
    assert tree_of(100_000_000, 100).height == 4
    assert CHECKSUMS == {"deflate": b"crc32", "zstandard": b"xxh64"}
    assert {fmt.SPLIT_RUNS_KEY, fmt.UPPER_CRC_KEY, fmt.CHECKSUM_KEY, fmt.HEADER_CRC_KEY} == fmt.SEALED_KEYS
    assert (HASH_NAME, SEED) == ("spark-murmur3", 42)


def test_each_codec_is_on_the_page() -> None:
    written, read = re.search(r"written: (.*); read: (.*), too", PAGE).groups()  # type: ignore[union-attr]
    assert set(re.findall(r"`(\w+)`", written)) == set(COMPRESSORS)
    assert set(re.findall(r"`(\w+)`", written + read)) == set(DECOMPRESSORS)


def test_the_example_is_a_real_file() -> None:
    schema = EntrySchema((Column("k", "string", False),), (Column("v", "int", False),))
    entries: list[Entry] = [((letter,), (i,)) for i, letter in enumerate("abcdefghij")]
    data = write(schema, entries, codec="null", node_bytes=1)
    header = header_of(data)
    example = PAGE[PAGE.index("## Example") : PAGE.index("## Key types")]
    assert f"header is {header.end} bytes" in example
    assert f"`data_bytes` is {header.number(fmt.DATA_BYTES_KEY)}, the file {len(data)} bytes long" in example
    lines = example.split("```")[1].strip().splitlines()
    shown = b""
    for line in lines:
        offset, pairs = re.match(r"(\d*) +((?:[0-9a-f]{2} ?)+)(?: |$)", line).groups()  # type: ignore[union-attr]
        if offset:
            assert int(offset) == header.end + len(shown)
        shown += bytes.fromhex(pairs)
    assert shown == data[header.end :]


def test_each_key_type_has_a_row_with_its_avro_type() -> None:
    table = PAGE[PAGE.index("| type | Avro |") :].split("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    listed = {name.strip("| "): cells[1] for cells in rows for name in cells[0].split(", ")}
    for name, avro in listed.items():
        kind = "decimal(9,2)" if name == "decimal(p,s)" else name
        assert is_key_type(kind)
        schema = key_type(kind).avro
        base = schema["type"] if isinstance(schema, dict) else schema
        assert str(base) in avro
        if isinstance(schema, dict):
            assert f"`{schema['logicalType']}`" in avro
    assert len(listed) == 13
