"""Spark's DDL, both ways."""

import pyarrow as pa
import pytest

from gnomon.sources.errors import OptionError
from gnomon.sources.types.ddl import COMMENT, DEPTH_LIMIT, parse_ddl, to_ddl

ALL = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(10,2), i string, j binary, "
    "k date, l timestamp, m timestamp_ntz, n time, o void, p array<map<string,int>>, "
    "q struct<x:int,`y z`:array<string>,`ü`:struct<>>, `odd ``name` string COMMENT 'it\\'s a \\\\'"
)


def test_a_schema_written_as_ddl_is_read_back_the_same() -> None:
    schema = parse_ddl(ALL)
    assert to_ddl(schema) == ALL
    assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)


def test_types_are_sparks() -> None:
    schema = parse_ddl(ALL)
    assert schema.field("h").type == pa.decimal128(10, 2)
    assert schema.field("l").type == pa.timestamp("us", "UTC")
    assert schema.field("m").type == pa.timestamp("us")
    assert schema.field("p").type == pa.list_(pa.map_(pa.string(), pa.int32()))
    assert schema.field("q").type.names == ["x", "y z", "ü"]
    assert schema.field("odd `name").metadata == {COMMENT: b"it's a \\"}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A BIGINT , b\tString", "A bigint, b string"),
        ("a: long, b: integer NOT NULL, c real", "a bigint, b int, c float"),
        ("a decimal, b decimal(5), c numeric(5,1)", "a decimal(10,0), b decimal(5,0), c decimal(5,1)"),
        ("a char(3), b varchar(10), c timestamp_ltz, d time(6)", "a string, b string, c timestamp, d time"),
        ("a struct<x int, y: int not null comment \"n\">", "a struct<x:int,y:int COMMENT 'n'>"),
        ("1a int", "`1a` int"),
        ("", ""),
    ],
)  # fmt: skip
def test_other_spellings_mean_the_same(text: str, same: str) -> None:
    assert to_ddl(parse_ddl(text)) == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "at character 1: expected a type, found the end"),
        ("a int b string", "at character 5: expected ,, found b"),
        ("a int,", "expected a name, found the end"),
        ("a text", "at character 1: 'text' is not a type of Spark"),
        ("a int(3)", r"'int\(3\)' is not a type of Spark"),
        ("a decimal(39)", "a decimal has 1 to 38 digits"),
        ("a decimal(5,6)", "a decimal has 1 to 38 digits"),
        ("a decimal(5,2,1)", "a decimal has 1 to 38 digits"),
        ("a decimal(x)", "expected a number, found 'x'"),
        ("a array<int", "expected >, found the end"),
        ("a map<int>", "expected ,, found >"),
        ("a int not b", "expected NULL after NOT"),
        ("a int, a string", "at character 6: the name 'a' occurs twice"),
        ("a struct<x:int,x:int>", "the name 'x' occurs twice"),
        ("a int ; b int", "at character 5: cannot be read: '; b int'"),
        ("`a", "at character 0: cannot be read"),
        ("a " + "array<" * (DEPTH_LIMIT + 1), f"nested more than {DEPTH_LIMIT} deep"),
    ],
)
def test_what_is_not_ddl_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_ddl(text)


def test_a_type_spark_does_not_have_is_refused() -> None:
    with pytest.raises(OptionError, match="Spark's DDL has no type for uint8"):
        to_ddl(pa.schema([pa.field("a", pa.uint8())]))
