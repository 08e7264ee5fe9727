"""A partition value has one text, and a text one value, whatever the engine that appends."""

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from gnomon.jobs.dedup import PartitionText
from gnomon.shadow import UsageError

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
# The type of the column, the values of a batch's column, their texts.
SAME: Sequence[tuple[str, pa.Array, list[str | None]]] = [
    ("string", pa.array(["a", "", "__HIVE_DEFAULT_PARTITION__", " a ", None]), ["a", None, None, " a ", None]),
    ("string", pa.array([7, -1, None]), ["7", "-1", None]),
    ("string", pa.array([True, None]), ["true", None]),
    ("string", pa.nulls(2), [None, None]),
    ("string", pa.array(["a", "", None], pa.large_string()), ["a", None, None]),
    ("string", pa.array(["a", None], pa.string_view()), ["a", None]),
    ("int", pa.array(["007", "+7", "", None]), ["7", "7", None, None]),
    ("int", pa.array(["007", None], pa.large_string()), ["7", None]),
    ("int", pa.array(["007", None], pa.string_view()), ["7", None]),
    ("int", pa.array([7, 2**31 - 1], pa.int64()), ["7", "2147483647"]),
    ("int", pa.array([7.0]), ["7"]),
    ("int", pa.nulls(1), [None]),
    ("boolean", pa.array(["True", "FALSE"]), ["true", "false"]),
    ("boolean", pa.array([True, None]), ["true", None]),
    ("date", pa.array(["20260101", "2026-W01-4", "+10000-01-01"]), ["2026-01-01", "2026-01-01", "+10000-01-01"]),
    ("date", pa.array([2932897], pa.int32()).view(pa.date32()), ["+10000-01-01"]),
    ("decimal(38,10)", pa.array(["0", "1e-10", "1.5"]), ["0.0000000000", "0.0000000001", "1.5000000000"]),
    ("decimal(5,2)", pa.array([Decimal("1.500"), Decimal("-2")]), ["1.50", "-2.00"]),
    ("decimal(5,2)", pa.array([3, None]), ["3.00", None]),
    ("double", pa.array(["nan", "-0.0", "1e3", "Infinity"]), ["NaN", "-0.0", "1000.0", "Infinity"]),
    ("double", pa.array([float("nan"), -0.0, 0.0, 1e30]), ["NaN", "-0.0", "0.0", "1e+30"]),
    ("timestamp", pa.array(["2026-01-01 12:00", "2026-01-01T21:00:00+09:00"]), ["2026-01-01T12:00:00Z"] * 2),
    ("timestamp", pa.array([NOON], pa.timestamp("ms", "Asia/Tokyo")), ["2026-01-01T12:00:00Z"]),
    ("timestamp_ntz", pa.array([NOON.replace(tzinfo=None, microsecond=5)]), ["2026-01-01T12:00:00.000005"]),
]
REFUSED: Sequence[tuple[str, pa.Array, str]] = [
    ("boolean", pa.array(["yes"]), "expected boolean, found 'yes'"),
    ("boolean", pa.array([1]), "the partition column p is int64, the index's is boolean; cast it"),
    ("date", pa.array(["2026-01-01 junk"]), "expected date, found '2026-01-01 junk'"),
    ("date", pa.array([NOON]), "the partition column p is timestamp.*, the index's is date; cast it"),
    ("int", pa.array([" 7"]), "expected int, found ' 7'"),
    ("int", pa.array([2**31]), "expected int, found 2147483648"),
    ("int", pa.array([7.5]), "expected int, found 7.5"),
    ("decimal(5,2)", pa.array(["1.5f"]), r"expected decimal\(5,2\), found '1.5f'"),
    ("decimal(5,2)", pa.array([Decimal("1.255")]), r"expected decimal\(5,2\), found Decimal\('1.255'\)"),
    ("double", pa.array(["1.5d"]), "expected double, found '1.5d'"),
    ("timestamp", pa.array(["2026-01-01 12:00 Europe/Berlin"]), "expected timestamp, found"),
    ("timestamp_ntz", pa.array(["2026-01-01T12:00:00Z"]), "expected timestamp_ntz, found"),
    ("string", pa.array([1.5]), "the partition column p is double; expected text"),
    ("string", pa.array([NOON]), "the partition column p is timestamp.*; expected text"),
]


def checked_texts(text: PartitionText, values: pa.Array) -> pa.Array:
    text.check(values.type, ())
    return text(values)


@pytest.mark.parametrize(("kind", "values", "texts"), SAME, ids=lambda one: str(getattr(one, "type", one))[:30])
def test_each_value_has_one_text_from_which_the_same_value_is_read(
    kind: str, values: pa.Array, texts: list[str | None]
) -> None:
    text = PartitionText("p", kind, in_lake=False)
    assert checked_texts(text, values).to_pylist() == texts
    typed = text.typed(text(values))
    assert typed.null_count == texts.count(None)
    assert text(typed).to_pylist() == texts


@pytest.mark.parametrize(("kind", "values", "says"), REFUSED, ids=lambda one: str(getattr(one, "type", one))[:30])
def test_a_value_that_is_not_of_the_type_is_refused_in_one_line(kind: str, values: pa.Array, says: str) -> None:
    with pytest.raises(UsageError, match=f"^batch: .*{says}") as caught:
        checked_texts(PartitionText("p", kind, in_lake=False), values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["string", "int"])
@pytest.mark.parametrize("null", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_a_lake_table_would_take_for_null_is_refused(kind: str, null: str) -> None:
    assert PartitionText("p", kind, in_lake=False)(pa.array([null])).to_pylist() == [None]
    with pytest.raises(UsageError, match="partition column p: expected a text that is not empty, or null"):
        PartitionText("p", kind, in_lake=True)(pa.array([null]))


def test_folders_that_write_values_in_another_form_are_refused() -> None:
    text = PartitionText("p", "string", in_lake=False)
    for kind, odd in ((pa.int32(), "07"), (pa.date32(), "20260101"), (pa.bool_(), "True")):
        with pytest.raises(
            UsageError, match=f"batch: p is {re.escape(str(kind))}, the source has folders like p={odd}"
        ):
            text.check(kind, [odd])
    text.check(pa.string(), ["07", "True"])
