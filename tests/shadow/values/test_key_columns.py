"""shadow/values/key_columns.py: keys of a sample in the types of an index."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.btree.key_types import MAPPED, key_type
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.values import typed_keys

NS = 1_767_270_600_123_456_789


def typed(array: pa.Array, kind: str, source: str | None = None) -> tuple[list[Any], list[bool]]:
    """The values of a column in a key type, and whether each may have a row."""
    spec = IndexSpec(Folder("/s"), "parquet", (), (KeyColumn("k", kind, source_type=source),), (), 1)
    arrays, held = typed_keys(pa.record_batch({"k": array}), spec, "keys")
    assert arrays[0].type == key_type(kind).arrow
    return arrays[0].to_pylist(), held.tolist()


# Key type, source type, texts of values, texts that are no value of it.
TEXTS: list[tuple[str, str | None, list[str], list[str]]] = [
    ("string", None, ["", " a", "2024-01-01"], []),
    ("boolean", None, ["true", "false"], ["t", "yes", "1", " true", "TRUE"]),
    ("tinyint", None, ["-128", "7"], ["128", "1.0", "1b"]),
    ("smallint", None, ["32767"], ["32768", "1s"]),
    ("int", None, ["1", "-5"], [" 1", "1 ", "1_0", "\u0661", "1e3", "1.0", ""]),
    ("bigint", None, ["9223372036854775807"], ["9223372036854775808", "1L"]),
    ("float", None, ["1.5", "-0.0"], ["1.5f", "1,5", "1.5\n"]),
    ("double", None, ["1.5", "1e300"], ["1.5d", " 1.5", "1_000.5", "one", "\u0661"]),
    ("decimal(9,2)", None, ["1.50", "-3"], ["1.504", "1e9", "1.5BD", " 1.5", "1_0"]),
    ("date", None, ["2024-01-01", "0001-01-01"], ["2024-01-01 junk", "2024", "2024-1-1", "2024-01-01T10:00:00"]),
    ("timestamp", None, ["2024-01-01", "2024-01-01T00:00", "2024-01-01 05:00:00+05:00"], ["2024-01", "now", "10:00"]),
    ("timestamp_ntz", None, ["2024-01-01T02:30:00"], ["2024-01-01T00:00:00+05:00", "2024-01-01T00:00:00Z"]),
    ("binary", None, ["YWI=", ""], ["YQ", "a", "YQ==junk"]),
    ("decimal(20,0)", "uint64", ["18446744073709551615"], ["1.5", "0x10"]),
    ("float", "half", ["0.1"], ["half"]),
    ("binary", "uuid", ["00112233-4455-6677-8899-aabbccddeeff"], ["00112233-4455-6677-8899-aabbccddeef"]),
    ("bigint", "time(ms)", ["12:30:00.005"], ["12:30:00.0005", "24:00:01"]),
    ("bigint", "timestamp(ns)", ["2026-01-01T12:30:00.123456789Z", "2024-03-10T02:30:00"], ["2026"]),
    ("bigint", "timestamp_ntz(ns)", ["2026-01-01T12:30:00.123456789"], ["2026-01-01T12:30:00+01:00"]),
]


@pytest.mark.parametrize(("kind", "source", "values", "junk"), TEXTS)
def test_text_that_is_no_value_of_the_type_is_refused(
    kind: str, source: str | None, values: list[str], junk: list[str]
) -> None:
    assert typed(pa.array(values), kind, source)[1] == [True] * len(values)
    for text in junk:
        with pytest.raises(UsageError, match=r"^keys: key column k: expected .*, found '"):
            typed(pa.array([text]), kind, source)


NUMBER_TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "decimal(9,2)": pa.decimal128(9, 2), "decimal(20,0)": pa.decimal128(20, 0),
}  # fmt: skip
NUMBERS = [0, 1, -1, 5, 127, 128, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 10**19, 0.5, 1e300, 5.25, 0.1]


@pytest.mark.parametrize("given_as", [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("kind", NUMBER_TYPES)
def test_numbers_are_compared_by_their_value(given_as: pa.DataType, kind: str) -> None:
    arrays = []
    for number in NUMBERS:
        try:
            arrays.append(pa.array([number], given_as))
        except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError):
            continue
    for array in [*arrays, pa.concat_arrays(arrays)]:
        values, held = typed(array, kind)
        for before, after, is_held in zip(array.to_pylist(), values, held, strict=True):
            assert is_held == (after is not None)
            digits = _digits(before, given_as, NUMBER_TYPES[kind])
            assert after is None or Decimal(after) == digits
            assert (after is not None) == _holds(kind, digits)


def _digits(number: float, given_as: pa.DataType, wanted: pa.DataType) -> Decimal:
    """The number, exactly; the floating number 0.1 is the decimal 0.1."""
    if pa.types.is_floating(given_as) and pa.types.is_decimal(wanted):
        return Decimal(str(np.float32(number)) if given_as == pa.float32() else repr(number))
    return Decimal(number)


def _holds(kind: str, exact: Decimal) -> bool:
    """Whether a value of the type equals a number exactly."""
    wanted = NUMBER_TYPES[kind]
    if pa.types.is_integer(wanted):
        return exact == exact.to_integral_value() and -(2 ** (wanted.bit_width - 1)) <= exact < 2 ** (
            wanted.bit_width - 1
        )
    if pa.types.is_decimal(wanted):
        scaled = exact.scaleb(wanted.scale)
        return scaled == scaled.to_integral_value() and abs(scaled) < 10**wanted.precision
    try:
        single = pa.array([float(exact)], pa.float64()).cast(wanted)[0].as_py()
    except OverflowError:
        return False
    return Decimal(single) == exact


def test_nan_is_one_key_and_null_is_none() -> None:
    values, held = typed(pa.array([float("nan"), None, 1.5]), "float")
    assert (str(values[0]), values[1:], held) == ("nan", [None, 1.5], [True, True, True])
    values, held = typed(pa.array([float("nan"), None, 1.0]), "int")
    assert (values, held) == ([None, None, 1], [False, True, True])


@pytest.mark.parametrize(
    ("kind", "source", "text", "stored"),
    [
        ("string", None, " a ", " a "),
        ("bigint", None, "-12", -12),
        ("double", None, "1e3", 1000.0),
        ("boolean", None, "true", True),
        ("date", None, "2026-01-01", dt.date(2026, 1, 1)),
        ("timestamp", None, "2026-01-01T00:00:00Z", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("timestamp_ntz", None, "2026-01-01T00:00:00", dt.datetime(2026, 1, 1)),
        ("decimal(9,2)", None, "5.25", Decimal("5.25")),
        ("binary", None, "/wA=", b"\xff\0"),
        ("binary", "uuid", "00010203-0405-0607-0809-0a0b0c0d0e0f", bytes(range(16))),
        ("bigint", "time(ns)", "12:30:00.000000005", 45_000_000_000_005),
        ("bigint", "timestamp(ns)", "2026-01-01T12:30:00.123456789Z", NS),
        ("float", "half", "0.1", 0.0999755859375),
    ],
)
def test_text_is_read_as_on_the_command_line(kind: str, source: str | None, text: str, stored: Any) -> None:
    for array in (pa.array([text, None, text]), pa.array([text, None, text], pa.large_string())):
        assert typed(array, kind, source) == ([stored, None, stored], [True] * 3)
        assert typed(array.dictionary_encode(), kind, source)[0] == [stored, None, stored]
    if kind != "string":
        with pytest.raises(UsageError, match=r"keys: key column k: expected .*, found 'no such value'"):
            typed(pa.array([text, "no such value"]), kind, source)


@pytest.mark.parametrize("source", MAPPED)
def test_a_column_of_the_source_type_is_taken_as_it_is_indexed(source: str) -> None:
    arrow = {"uuid": pa.uuid(), "half": pa.float16(), "fixed": pa.binary(16), "bool8": pa.bool8()}.get(source)
    if arrow is None and source.startswith("uint"):
        arrow = getattr(pa, source)()
    if arrow is None:
        unit = source.partition("(")[2].removesuffix(")")
        times = {"s": pa.time32, "ms": pa.time32, "us": pa.time64, "ns": pa.time64}
        arrow = (
            times[unit](unit) if source.startswith("time(") else pa.timestamp("ns", None if "ntz" in source else "UTC")
        )
    value = {"uuid": bytes(16), "fixed": bytes(16)}.get(source, 1)
    storage = arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow
    if pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        array = pa.array([value, None], pa.int32() if arrow.bit_width == 32 else pa.int64()).view(arrow)
    elif isinstance(arrow, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(arrow, pa.array([value, None], storage))
    else:
        array = pa.array([value, None], pa.int8()).cast(arrow) if source == "half" else pa.array([value, None], arrow)
    kind = next(name for name in ("bigint", "decimal(20,0)", "float", "boolean", "binary", "int", "smallint")
                if key_type(name).arrow == MAPPED[source])  # fmt: skip
    values, held = typed(array, kind, source)
    assert (values[0] == value, values[1], held) == (True, None, [True, True])


def test_moments_are_compared_across_units() -> None:
    seconds = pa.array([3, None], pa.timestamp("s", "UTC"))
    assert typed(seconds, "bigint", "timestamp(ns)")[0] == [3 * 10**9, None]
    assert typed(seconds, "timestamp")[0][0] == dt.datetime(1970, 1, 1, 0, 0, 3, tzinfo=dt.UTC)
    values, held = typed(pa.array([1000, 1001], pa.timestamp("ns")), "timestamp_ntz")
    assert (values, held) == ([dt.datetime(1970, 1, 1, 0, 0, 0, 1), None], [True, False])
    values, held = typed(pa.array([2**62, 1], pa.timestamp("s")), "bigint", "timestamp_ntz(ns)")
    assert (values, held) == ([None, 10**9], [False, True])
    assert typed(pa.array([5], pa.time32("s")), "bigint", "time(us)")[0] == [5_000_000]


def test_a_moment_without_a_zone_is_no_instant() -> None:
    with pytest.raises(UsageError, match=r"the key column k is timestamp\[us\], the index's is timestamp; cast it"):
        typed(pa.array([1], pa.timestamp("us")), "timestamp")


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_texts_of_integers_are_the_integers(numbers: list[int | None]) -> None:
    texts = pa.array([None if n is None else str(n) for n in numbers], pa.string())
    assert typed(texts, "bigint")[0] == numbers
