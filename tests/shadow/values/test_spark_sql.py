"""Keys as a condition of Spark SQL."""

import pyarrow as pa
import pytest

import gnomon
from gnomon.shadow.errors import UnknownColumn, UsageError


def test_the_keys_of_one_column() -> None:
    rows = pa.table({"id": [5, 7, 5], "v": ["a", "b", "c"]})
    assert gnomon.key_filter(rows, ["id"], alias="t") == "`t`.`id` IN (5L, 7L)"
    assert gnomon.key_filter(rows.slice(0, 1), ["id"]) == "`id` = 5L"
    assert gnomon.key_filter(rows.slice(0, 0), ["id"]) == "false"


def test_the_keys_of_several_columns_share_their_first_ones() -> None:
    rows = pa.table({"country": ["de", "de", "fr"], "id": pa.array([1, 2, 1], pa.int32())})
    expected = "((`country` = 'de' AND `id` IN (1, 2)) OR (`country` = 'fr' AND `id` = 1))"
    assert gnomon.key_filter(rows, ["country", "id"]) == expected


def test_a_null_equals_null() -> None:
    rows = pa.table({"a": [None, 1, 2, None], "b": ["x", None, None, None]})
    assert gnomon.key_filter(rows, ["a"]) == "(`a` IN (1L, 2L) OR `a` IS NULL)"
    found = gnomon.key_filter(rows, ["b", "a"])
    assert found == "((`b` = 'x' AND `a` IS NULL) OR (`b` IS NULL AND (`a` IN (1L, 2L) OR `a` IS NULL)))"
    assert gnomon.key_filter(pa.table({"a": pa.nulls(2)}), ["a"]) == "`a` IS NULL"


def test_names_are_quoted() -> None:
    assert gnomon.key_filter(pa.table({"a b`c": [1]}), ["a b`c"], alias="t") == "`t`.`a b``c` = 1L"


def test_what_cannot_be_a_condition_is_refused() -> None:
    rows = pa.table({"id": [1], "list": [[1]]})
    with pytest.raises(UnknownColumn, match="one column nothing"):
        gnomon.key_filter(rows, ["nothing"])
    with pytest.raises(UsageError, match="list"):
        gnomon.key_filter(rows, ["list"])
    with pytest.raises(UsageError, match="expected"):
        gnomon.key_filter(rows, [])
    with pytest.raises(UsageError, match="split the batch"):
        gnomon.key_filter(pa.table({"id": range(100_001)}), ["id"])


def test_no_variable_of_spark_is_put_in() -> None:
    assert gnomon.key_filter(pa.table({"id": ["${env:HOME}"]}), ["id"]) == "`id` = '\\u0024{env:HOME}'"
    for names in (["${a}"], ["id"]):
        with pytest.raises(UsageError, match="variable"):
            gnomon.key_filter(pa.table({names[0]: [1]}), names, alias="" if names[0] != "id" else "${b}")


def test_a_moment_that_spark_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="microseconds"):
        gnomon.key_filter(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), ["at"])


def test_frames_of_pandas_and_batches_of_arrow_are_rows() -> None:
    rows = pa.table({"id": [1, 2]})
    assert gnomon.key_filter(rows.to_pandas(), ["id"]) == gnomon.key_filter(rows.to_batches()[0], ["id"])
