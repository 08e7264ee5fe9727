"""The compact protocol: encoded values are decoded again, and no bytes make the decoder hang, crash or allocate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.thrift import CutShort, Decoder, ThriftError

ENCODERS = {
    thrift.I64: (st.integers(-(1 << 63), (1 << 63) - 1), thrift.integer),
    thrift.I32: (st.integers(-(1 << 31), (1 << 31) - 1), thrift.integer),
    thrift.BINARY: (st.binary(max_size=300), thrift.binary),
}
FIELD = st.sampled_from(sorted(ENCODERS)).flatmap(lambda wire: st.tuples(st.just(wire), ENCODERS[wire][0]))


@given(st.dictionaries(st.integers(1, 1000), FIELD))
def test_a_struct_comes_back_as_it_was_encoded(fields: dict[int, tuple[int, object]]) -> None:
    encoded = thrift.struct([(i, wire, ENCODERS[wire][1](value)) for i, (wire, value) in sorted(fields.items())])
    decoder, found = Decoder(encoded), dict[int, object]()
    for i, wire in decoder.fields():
        found[i] = decoder.text(wire) if wire == thrift.BINARY else decoder.number(wire)
    assert found == {i: value for i, (_, value) in fields.items()}
    assert decoder.position == len(encoded)
    texts = {i: value for i, (wire, value) in fields.items() if wire == thrift.BINARY}
    assert Decoder(encoded).texts() == texts
    skipper = Decoder(encoded)
    for _, wire in skipper.fields():
        skipper.skip(wire)
    assert skipper.position == len(encoded)


@pytest.mark.parametrize("count", [0, 1, 14, 15, 1000])
def test_lists_of_any_length_come_back(count: int) -> None:
    values = list(range(count))
    encoded = thrift.struct([(1, thrift.LIST, thrift.array(thrift.I32, [thrift.integer(v) for v in values]))])
    decoder = Decoder(encoded)
    assert next(decoder.fields()) == (1, thrift.LIST)
    wire, found = decoder.list_header()
    assert [decoder.number(wire) for _ in range(found)] == values


def test_every_wire_type_is_skipped() -> None:
    every = bytes.fromhex(
        "11"  # 1: true
        "12"  # 2: false
        "13 ff"  # 3: i8 -1
        "17 000000000000f03f"  # 4: double 1.0
        "19 21 01 02"  # 5: list of two booleans
        "1b 01 85 01 61 02"  # 6: map of one, binary to i32
        "1c 15 02 00"  # 7: struct with 1: i32 1
        "1d" + "ab" * 16 + "00"  # 8: uuid
    )
    decoder = Decoder(every)
    assert decoder.field_ids() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert decoder.position == len(every)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_thrift_error(data: bytes) -> None:
    for read in (Decoder.texts, Decoder.field_ids, lambda decoder: decoder.skip(thrift.STRUCT)):
        try:
            read(Decoder(data))
        except ThriftError:
            continue


def test_bytes_that_end_early_are_distinguished_from_bytes_that_are_wrong() -> None:
    whole = thrift.struct([(1, thrift.I32, thrift.integer(1 << 20)), (2, thrift.BINARY, thrift.binary(b"abc"))])
    for end in range(len(whole)):
        with pytest.raises(CutShort):
            Decoder(whole[:end]).field_ids()
        with pytest.raises(CutShort):
            Decoder(whole[:end]).texts()
    with pytest.raises(ThriftError, match="unknown wire type 15") as caught:
        Decoder(b"\x1f").field_ids()
    assert not isinstance(caught.value, CutShort)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x18" + b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x18\xff\xff\xff\xff\x0f", "bytes claimed"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", "4294967295 elements claimed"),
        (b"\x1b\xff\xff\xff\xff\x0f\x55", "4294967295 elements claimed"),
        (b"\x1c" * 500, "nested deeper"),
        (b"\x19\x19" + b"\x19" * 500, "nested deeper"),
    ],
    ids=["number", "bytes", "list", "map", "struct in struct", "list in list"],
)
def test_a_claim_beyond_the_bytes_left_is_refused_before_anything_is_made_of_it(data: bytes, message: str) -> None:
    with pytest.raises(ThriftError, match=message):
        Decoder(data).texts()


@pytest.mark.parametrize("wanted", ["number", "text", "structs"])
def test_a_field_of_another_wire_type_than_expected_is_refused(wanted: str) -> None:
    with pytest.raises(ThriftError, match="wire type 7 where"):
        getattr(Decoder(b"\0" * 20), wanted)(thrift.DOUBLE)
