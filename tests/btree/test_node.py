"""The records of a node agree with fastavro's, compiled or in Python, and other bytes are refused."""

import random
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.btree.columns import NO_LINK
from gnomon.btree.format import LINK_FIELD
from gnomon.btree.node import UNREADABLE, ListedKeys, NodeDecoder
from gnomon.btree.schema import FileSchema, file_schema
from tests.btree.test_columns import DIONES, OWN, decoded, encoded, row
from tests.loops import WAYS, loops_of, use
from tests.profiles import examples, positions

ROWS = [row(number) for number in range(40)]
KEYS = [["k"], ["n"], ["b", "d"], ["x", "f", "i"], ["r", "k"], ["d"]]
NUMBERS = [0, -1, 63, -64, 64, 8191, -8192, 8192, 2**31, -(2**62), 2**63 - 1, -(2**63)]


@pytest.fixture(params=WAYS)
def loops(request: pytest.FixtureRequest) -> SimpleNamespace:
    return loops_of(request.param)


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
def test_every_type_in_any_place_is_located(
    loops: SimpleNamespace, fields: list[dict[str, Any]], keys: list[str]
) -> None:
    schema = _schema(fields, keys)
    data = encoded(ROWS, schema)
    assert loops.locate(data, len(ROWS), 0, True, *schema.plan(keys)) == _expected(ROWS, keys, schema)
    assert loops.locate(b"", 0, 0, True, *schema.plan(keys)) == ([0], [[] for _ in keys], [])
    some = loops.locate(data, 2, len(encoded(ROWS[:3], schema)), False, *schema.plan(keys))
    assert some[1:] == _expected(ROWS[3:5], keys, schema)[1:]


@pytest.mark.parametrize("keys", [["k"], ["n", "d"]])
@pytest.mark.parametrize("fields", [OWN, DIONES])
def test_a_changed_byte_is_refused_or_located_as_it_decodes(
    loops: SimpleNamespace, fields: list[dict[str, Any]], keys: list[str]
) -> None:
    schema = _schema(fields, keys)
    data = encoded(ROWS[:6], schema)
    read = 0
    for at in positions(range(len(data))):
        for mask in (1, 2, 0x80, 0xFF):
            damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            try:
                starts, columns, links = loops.locate(damaged, 6, 0, True, *schema.plan(keys))
            except UNREADABLE:
                continue
            read += 1
            rows = decoded(6, damaged, schema)
            assert links == [one[LINK_FIELD] for one in rows]
            assert repr(columns) == repr(_expected(rows, keys, schema)[1])
            assert starts[-1] == len(damaged)
    assert read > 100


@pytest.mark.parametrize("count", [0, 5, 7, 1 << 40])
def test_another_number_of_records_is_refused(loops: SimpleNamespace, count: int) -> None:
    schema = _schema(OWN, ["k"])
    with pytest.raises(UNREADABLE):
        loops.locate(encoded(ROWS[:6], schema), count, 0, True, *schema.plan(["k"]))


def test_bytes_missing_or_left_over_are_refused(loops: SimpleNamespace) -> None:
    schema = _schema(OWN, ["k"])
    data = encoded(ROWS[:6], schema)
    for changed in (*(data[:cut] for cut in positions(range(len(data)))), data + b"\x00"):
        with pytest.raises(UNREADABLE):
            loops.locate(changed, 6, 0, True, *schema.plan(["k"]))


@pytest.mark.parametrize("number", NUMBERS)
def test_varints_of_every_length_are_read(loops: SimpleNamespace, number: int) -> None:
    schema = _schema(OWN, ["n"])
    data = encoded([{**ROWS[1], "n": number}], schema)
    assert loops.locate(data, 1, 0, True, *schema.plan(["n"]))[1] == [[number]]


@pytest.mark.parametrize("varint", [b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 1_000_000 + b"\x00"])
def test_a_varint_of_more_than_64_bits_is_refused(loops: SimpleNamespace, varint: bytes) -> None:
    schema = file_schema({"fields": [OWN[1], {"name": "k", "type": "string"}, OWN[-1]], "type": "record"}, ["n"], ["k"])
    assert loops.locate(b"\xff" * 9 + b"\x01\x00\x00", 1, 0, True, *schema.plan(["n"]))[1] == [[-(2**63)]]
    with pytest.raises(UNREADABLE):
        loops.locate(varint + b"\x00\x00", 1, 0, True, *schema.plan(["n"]))


@pytest.mark.parametrize("way", WAYS)
def test_no_name_of_a_file_becomes_code(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(way, monkeypatch)
    odd = {"name": "__import__", "type": ["null", "string"]}
    schema = file_schema({"type": "record", "name": "r", "fields": [odd, *OWN[1:]]}, ["__import__"], ["n"])
    data = encoded([{**ROWS[1], "__import__": ROWS[1]["k"]}], schema)
    assert NodeDecoder(schema).node(1, data).entries(0, 1) == [((ROWS[1]["k"].decode(),), (ROWS[1]["n"],))]


# -- keys, compiled and listed -----------------------------------------------------------------------------------------


def _random(dice: random.Random, number: int) -> dict[str, Any]:
    """A record of few distinct values, so that many are equal."""
    small = dice.choice([0, 1, -1, 127, 128, -128, -129, 255, 256, -256, 2**40, -(2**40)])
    reals = [0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf")]
    values = {
        "k": dice.choice([b"", b"a", b"a\x00", "\u00e9".encode(), b"b" * 200]),
        "n": dice.choice(NUMBERS),
        "b": dice.random() < 0.5,
        "d": small.to_bytes(dice.choice([6, 7, 16]), "big", signed=True),
        "x": dice.choice(reals),
        "f": struct.unpack("<f", struct.pack("<f", dice.choice(reals)))[0],
        "i": dice.choice([-1, 0, 1, 20_000]),
        "r": dice.choice([b"\xff", b"\x00", b""]),
        LINK_FIELD: number * 100 + 1 if dice.random() < 0.2 else None,
    }
    may_be_null = ["k", "b", "d", "f", "i", "r"]
    return {**values, **{name: None for name in may_be_null if dice.random() < 0.2}}


def _both(schema: FileSchema, data: bytes, count: int) -> tuple[Any, ListedKeys]:
    plan = schema.plan([column.name for column in schema.entry.keys])
    compiled = loops_of("compiled").RecordKeys(data, count, *plan)
    return compiled, ListedKeys(NodeDecoder(schema), loops_of("python").locate(data, count, 0, True, *plan))


def _wanted(schema: FileSchema, one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        int.from_bytes(one[name], "big", signed=True) if name == "d" and one[name] is not None else one[name]
        for name in (column.name for column in schema.entry.keys)
    )


def _sorted(schema: FileSchema, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    order = NodeDecoder(schema).order
    return sorted(rows, key=lambda one: order(_wanted(schema, one)))


@pytest.mark.parametrize("keys", [*KEYS, ["n", "k", "d"], [field["name"] for field in OWN[:7]]])
def test_compiled_keys_compare_and_are_found_as_listed_ones(keys: list[str]) -> None:
    schema, dice = _schema(OWN, keys), random.Random(5)
    for _ in range(examples(40)):
        rows = _sorted(schema, [_random(dice, number) for number in range(dice.randint(1, 30))])
        data = encoded(rows, schema)
        compiled, listed = _both(schema, data, len(rows))
        assert len(compiled) == len(listed) == len(rows)
        assert (compiled.is_sorted(), listed.is_sorted()) == (True, True)
        for at in range(len(rows)):
            assert (compiled.link(at), compiled.start(at)) == (listed.link(at), listed.start(at))
            assert compiled.next_link(at) == listed.next_link(at)
            other = dice.randrange(len(rows))
            assert compiled.is_ordered(at, compiled, other) == listed.is_ordered(at, listed, other)
        assert compiled.start(len(rows)) == listed.start(len(rows)) == len(data)
        for one in [*rows, *(_random(dice, 0) for _ in range(10))]:
            assert compiled.find(_wanted(schema, one)) == listed.find(_wanted(schema, one)), (keys, one)
        dice.shuffle(rows)
        compiled, listed = _both(schema, encoded(rows, schema), len(rows))
        assert compiled.is_sorted() == listed.is_sorted()


def test_numbers_beyond_64_bits_lie_at_the_ends() -> None:
    schema = _schema(OWN, ["n"])
    rows = _sorted(schema, [{**ROWS[1], "n": number} for number in NUMBERS])
    compiled, listed = _both(schema, encoded(rows, schema), len(rows))
    for number in (2**63, -(2**63) - 1, 2**200, -(2**200)):
        assert compiled.find((number,)) == listed.find((number,))


def test_damaged_bytes_give_the_keys_of_the_listed_ones_or_an_error() -> None:
    read = 0
    for keys in (["k"], ["n", "d"], ["b", "f"]):
        schema = _schema(OWN, keys)
        data = encoded(ROWS[:6], schema)
        for at in positions(range(len(data))):
            for mask in (1, 2, 0x80, 0xFF):
                damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
                try:
                    compiled, listed = _both(schema, damaged, 6)
                except UNREADABLE:
                    continue
                read += 1
                assert [compiled.link(i) for i in range(6)] == [listed.link(i) for i in range(6)]
                assert [compiled.start(i) for i in range(7)] == [listed.start(i) for i in range(7)]
                assert compiled.is_sorted() == listed.is_sorted()
    assert read > 100


def test_what_no_node_has_is_refused() -> None:
    compiled = loops_of("compiled")
    schema = _schema(OWN, ["k"])
    data, plan = encoded(ROWS[:6], schema), schema.plan(["k"])
    for count in (-1, 0, 5, 7, 1 << 62):
        with pytest.raises(UNREADABLE):
            compiled.RecordKeys(data, count, *plan)
    keys = compiled.RecordKeys(data, 6, *plan)
    for at in (-1, 6, 1 << 40):
        with pytest.raises(IndexError):
            keys.link(at)
        with pytest.raises(IndexError):
            keys.is_ordered(0, keys, at)
        with pytest.raises(IndexError):
            keys.start(at + (at == 6))
    for wanted, error in (((1,), TypeError), ((1.5,), TypeError), ((b"a", b"b"), ValueError)):
        with pytest.raises(error):
            keys.find(wanted)
    no_block = encoded([{**ROWS[1], LINK_FIELD: NO_LINK}], schema)
    with pytest.raises(ValueError, match="link"):
        compiled.RecordKeys(no_block, 1, *plan)
