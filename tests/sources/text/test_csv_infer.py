"""The types of CSV columns: Spark's own if they lose nothing (compared with Spark 4.3), else wider ones."""

import itertools

import pyarrow as pa
import pytest

from gnomon.sources import DamagedSource, OptionError, open_source
from gnomon.sources.pointers import OFFSET
from gnomon.sources.text import infer_csv, merge_csv
from gnomon.sources.types.ddl import parse_ddl, to_ddl
from tests.profiles import stride
from tests.sources.readers import BytesReader

INFER = {"infer_schema": "true"}


def inferred(*values: str) -> pa.Schema:
    return infer_csv(BytesReader("\n".join(["a,b", *(f"{value},x" for value in values)]).encode()), INFER)


def kind_of(*values: str) -> str:
    return to_ddl(inferred(*values).remove(1)).partition(" ")[2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["5", "+5", "-5", "007", "-0", "2147483647"], "int"),
        (["5", "2147483648", "-9223372036854775808"], "bigint"),
        (["9223372036854775808"], "decimal(19,0)"),
        (["9223372036854775808", "5"], "decimal(19,0)"),
        (["2147483648", "9223372036854775808"], "decimal(20,0)"),
        (["1" * 38], "decimal(38,0)"),
        (["1.0", "1.10", ".5", "1e5", "1E-5", "1E+10", " 5", "5 ", " 5.5"], "double"),
        (["NaN", "Inf", "-Inf", "Infinity", "-Infinity", "+Infinity", "5"], "double"),
        (["2147483648", "1.5"], "double"),
        (["true", "TRUE", "False"], "boolean"),
        (["2020-01-31", "0001-01-01", "-2020-01-31"], "date"),
        (["2020-01-31", "2020-01-31 23:59:59"], "timestamp"),
        (["2020-1-31", "2020-01", "2020-01-31 ", "2020-01-31 23:59", "2020-01-31T23:59:59.123456"], "timestamp"),
        (["2020-01-31T23:59:59Z", "2020-01-31T23:59:59+01:00", "2020-01-31 23:59:59 UTC", "12020-01-31"], "timestamp"),
        (["", '""', "5"], "int"),
        (["", '""'], "string"),
        (["5", "true"], "string"),
        (["5", "2020-01-31"], "string"),
        (["true", "2020-01-31"], "string"),
        (["1.5", "x"], "string"),
        *(([text], "string") for text in ("0x10", "5L", "inf", "nan", "yes", "1_000", " true", "01/31/2020")),
        *(([text], "string") for text in ("2020-02-31", "2020-01-31T", "2020-01-31T25:00:00", "2020/01/31", "null")),
    ],
)
def test_types_are_those_that_spark_infers(values: list[str], kind: str) -> None:
    assert kind_of(*values) == kind
    assert kind_of(*values[::-1]) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1.00000000000000000001"], "decimal(21,20)"),
        (["9007199254740993", "1.5"], "decimal(17,1)"),
        (["9007199254740992", "1.5"], "double"),
        (["9" * 38, "NaN"], "string"),
        (["1" * 39], "string"),
        (["1e400"], "string"),
        (["1e-400"], "string"),
        (["1e999999999"], "string"),
        (["9007199254740993", "1.5", " 5"], "string"),
        (["2020-01-31T23:59:59.1234567"], "string"),
        (["2020-01-31T23:59:59.1234560"], "timestamp"),
    ],
)
def test_where_spark_would_round_or_cut_the_type_is_wider(values: list[str], kind: str) -> None:
    assert kind_of(*values) == kind


def test_every_row_is_read_in_the_types_inferred_and_comes_back_from_its_pointer() -> None:
    data = b'n,x,d,t,q\n1,1.5,2020-01-31,2020-01-31T10:00:00Z,"1"\n-2,,,,""\n\n30,2,2021-01-01,2021-01-01,3\n'
    reader = BytesReader(data)
    source = open_source(reader, "csv", INFER)
    assert to_ddl(source.schema) == "n int, x double, d date, t timestamp, q int"
    (batch,) = source.scan(reader, source.schema.names)
    rows = pa.table(batch).select(source.schema.names)
    assert rows["q"].to_pylist() == [1, None, 3]
    assert rows["x"].to_pylist() == [1.5, None, 2.0]
    for row, offset in enumerate(batch[OFFSET].to_pylist()):
        assert source.fetch(reader, [(offset, 0)], source.schema.names).equals(rows.slice(row, 1))


def test_numbers_with_white_space_are_read_beside_those_that_no_double_holds() -> None:
    reader = BytesReader(b"n,m\n0.1234567890123456789, 5\n 5,1.5\n")
    source = open_source(reader, "csv", INFER)
    (batch,) = source.scan(reader, ["n", "m"])
    assert batch.select(["n", "m"]).to_pylist() == [{"n": "0.1234567890123456789", "m": 5.0}, {"n": " 5", "m": 1.5}]


def test_all_rows_are_looked_at_and_a_type_that_is_given_is_kept() -> None:
    data = b"a,b\n" + b"1,2\n" * 400_000 + b"x,2147483648\n"
    assert to_ddl(infer_csv(BytesReader(data), INFER)) == "a string, b bigint"
    assert to_ddl(open_source(BytesReader(data), "csv", {**INFER, "schema": "b string"}).schema) == "a string, b string"
    assert to_ddl(open_source(BytesReader(data), "csv").schema) == "a string, b string"


def test_types_of_several_files_merge_to_those_of_all_rows() -> None:
    values = ["", "5", "2147483648", "9223372036854775808", "1.5", "0.1234567890123456789", "NaN", "9" * 38, "1e400"]
    values += ["true", "2020-01-31", "2020-01-31 10:00", "x", " 5", "-007"]
    for three in [*itertools.product(values, values, values[3:6])][:: stride(1)]:
        together = to_ddl(inferred(*three))
        assert to_ddl(merge_csv([inferred(one) for one in three])) == together, three
        assert to_ddl(merge_csv([merge_csv([inferred(one) for one in three[:2]]), inferred(three[2])])) == together


@pytest.mark.parametrize(
    ("known", "new", "kind"),
    [
        ("int", "1.5", "double"),
        ("int", "2147483648", "bigint"),
        ("bigint", "1.5", "decimal(20,1)"),  # the values of earlier files are unknown, so no bigint may be rounded
        ("double", "9007199254740993", "string"),
        ("double", "7", "double"),
        ("decimal(19,0)", "1.5", "decimal(20,1)"),
        ("date", "2020-01-31 10:00", "timestamp"),
        ("string", "7", "string"),
        ("boolean", "7", "string"),
    ],
)
def test_what_is_known_of_files_before_is_widened(known: str, new: str, kind: str) -> None:
    assert to_ddl(merge_csv([parse_ddl(f"a {known}"), inferred(new).remove(1)])) == f"a {kind}"


def test_damage_is_reported_and_the_rows_before_it_are_read() -> None:
    reader = BytesReader(b'a\n1\n2\n"x')
    with pytest.raises(DamagedSource, match="does not close"):
        infer_csv(reader, INFER)
    with pytest.raises(DamagedSource, match="does not close"):
        list(open_source(reader, "csv", INFER).scan(reader, ["a"]))
    with pytest.raises(OptionError, match="option infer_schema: expected true or false, found 'yes'"):
        open_source(reader, "csv", {"infer_schema": "yes"})
