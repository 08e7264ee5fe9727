"""Locating the records of a node agrees with decoding them, and refuses other bytes."""

import struct
from typing import Any

import pytest

from gnomon.btree.columns import VALUE
from gnomon.btree.format import LINK_FIELD
from gnomon.btree.node import NodeDecoder
from gnomon.btree.node_decoder import Located, locator
from gnomon.btree.schema import FileSchema, file_schema
from tests.btree.test_columns import DIONES, OWN, encoded, row
from tests.profiles import positions

ROWS = [row(number) for number in range(40)]
KEYS = [["k"], ["n"], ["b", "d"], ["x", "f", "i"], ["r", "k"], ["d"]]
DAMAGE = (ValueError, IndexError, struct.error)


def _schema(fields: list[dict[str, Any]], keys: list[str]) -> FileSchema:
    values = [field["name"] for field in OWN if field["name"] not in [*keys, LINK_FIELD]]
    return file_schema({"type": "record", "name": "r", "fields": fields}, keys, values)


def _expected(rows: list[dict[str, Any]], keys: list[str], schema: FileSchema) -> tuple[object, object, object]:
    starts = [0]
    for one in rows:
        starts.append(starts[-1] + len(encoded([one], schema)))
    columns = [
        [int.from_bytes(one[k], "big", signed=True) if k == "d" and one[k] is not None else one[k] for one in rows]
        for k in keys
    ]
    return starts, columns, [one[LINK_FIELD] for one in rows]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("fields", [OWN, DIONES])
def test_every_type_in_any_place_is_located(fields: list[dict[str, Any]], keys: list[str]) -> None:
    schema = _schema(fields, keys)
    data = encoded(ROWS, schema)
    located = locator(schema)(data, len(ROWS))
    as_stored = NodeDecoder(schema).rows(len(ROWS), data)
    assert tuple(located) == _expected(as_stored, keys, schema)
    assert locator(schema)(b"", 0) == Located([0], [[] for _ in keys], [])


@pytest.mark.parametrize("keys", [["k"], ["n", "d"]])
@pytest.mark.parametrize("fields", [OWN, DIONES])
def test_a_changed_byte_is_refused_or_located_as_it_decodes(fields: list[dict[str, Any]], keys: list[str]) -> None:
    schema = _schema(fields, keys)
    decoder, locate = NodeDecoder(schema), locator(schema)
    data = encoded(ROWS[:6], schema)
    read = 0
    for at in positions(range(len(data))):
        for mask in (1, 2, 0x80, 0xFF):
            damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            try:
                located = locate(damaged, 6)
            except DAMAGE:
                continue
            read += 1
            rows = decoder.rows(6, damaged)
            assert located.links == [one[LINK_FIELD] for one in rows]
            assert repr(located.columns) == repr(_expected(rows, keys, schema)[1])
            assert located.starts[-1] == len(damaged)
    assert read > 100


@pytest.mark.parametrize("count", [0, 5, 7, 1 << 40])
def test_another_number_of_records_is_refused(count: int) -> None:
    schema = _schema(OWN, ["k"])
    with pytest.raises(DAMAGE):
        locator(schema)(encoded(ROWS[:6], schema), count)


def test_bytes_missing_or_left_over_are_refused() -> None:
    schema = _schema(OWN, ["k"])
    data = encoded(ROWS[:6], schema)
    for changed in (*(data[:cut] for cut in positions(range(len(data)))), data + b"\x00"):
        with pytest.raises(DAMAGE):
            locator(schema)(changed, 6)


@pytest.mark.parametrize("number", [0, -1, 63, -64, 64, 8191, -8192, 8192, 2**31, -(2**62), 2**63 - 1, -(2**63)])
def test_varints_of_every_length_are_read(number: int) -> None:
    schema = _schema(OWN, ["n"])
    located = locator(schema)(encoded([{**ROWS[1], "n": number}], schema), 1)
    assert located.columns == [[number]]


@pytest.mark.parametrize("varint", [b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 1_000_000 + b"\x00"])
def test_a_varint_of_more_than_64_bits_is_refused(varint: bytes) -> None:
    schema = file_schema({"fields": [OWN[1], {"name": "k", "type": "string"}, OWN[-1]], "type": "record"}, ["n"], ["k"])
    assert locator(schema)(b"\xff" * 9 + b"\x01\x00\x00", 1).columns == [[-(2**63)]]
    with pytest.raises(DAMAGE):
        locator(schema)(varint + b"\x00\x00", 1)


def test_no_name_of_a_file_becomes_code() -> None:
    odd = {"name": "__import__", "type": ["null", "string"]}
    schema = file_schema({"type": "record", "name": "r", "fields": [odd, *OWN[1:]]}, ["__import__"], ["n"])
    data = encoded([{**ROWS[1], "__import__": ROWS[1]["k"]}], schema)
    assert data[0] == VALUE
    assert locator(schema)(data, 1).columns == [[ROWS[1]["k"]]]
