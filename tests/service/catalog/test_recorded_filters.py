"""Filters as Spark 4.1.4 with Iceberg 1.12 sent them for conditions of SQL: each is read, and names the keys that the
condition does. `tests/golden/spark_filters.json` has the schema, and for each condition the filter and the ids of the
rows that Spark answered, of two rows with ids 7 and 8, each in a file of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from gnomon.service.catalog.filters import Junction, Predicate, Unjudged, alternatives, parse

RECORDED = json.loads((Path(__file__).parents[2] / "golden" / "spark_filters.json").read_text())
SCHEMA = Schema.model_validate(RECORDED["schema"])
FILTERS = {one["sql"]: one["filter"] for one in RECORDED["exchanges"]}
ID = SCHEMA.find_field("id").field_id
KEYS = {
    "id = 7": {7},
    "id IN (7, 9)": {7, 9},
    "id IS NULL": {None},
    "id <=> 7": {7},
    "id = 7 AND (name = 'it''s é' OR number IN (1, -5))": {7},
    "(id = 7 OR id = 8) AND NOT (name = 'x')": {7, 8},
    "day >= DATE '2026-01-01' AND id IN (7, 8)": {7, 8},
    "lower(name) = 'a' AND id = 7": {7},
    "id % 2 = 1 AND id = 7": {7},
}
UTC_2026 = 1767323045000006  # 2026-01-02 03:04:05.000006
VALUES = {
    "name = 'it''s é'": "it's é",
    "day = DATE '2026-01-02'": 20455,
    "amount = 1.5": 150,
    "at = TIMESTAMP '2026-01-02 03:04:05.000006'": UTC_2026,
    "local = TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'": -1,
    "bytes = X'00FF'": b"\x00\xff",
    "ratio = CAST(0.1 AS FLOAT)": 0.10000000149011612,
    "share = 0.1D": 0.1,
    "flag = true": True,
}


def predicates(found: Any) -> list[Any]:
    if isinstance(found, Junction):
        return [one for part in found.parts for one in predicates(part)]
    return [found]


@pytest.mark.parametrize("sql", FILTERS)
def test_every_predicate_is_judged(sql: str) -> None:
    found = predicates(parse(FILTERS[sql], SCHEMA))
    assert not any(isinstance(one, Unjudged) for one in found)


@pytest.mark.parametrize("sql", FILTERS)
def test_the_keys_are_those_of_the_condition(sql: str) -> None:
    found = alternatives(parse(FILTERS[sql], SCHEMA))
    keys = {value for one in found for value in one[ID]} if all(ID in one for one in found) else None
    assert keys == KEYS.get(sql)


@pytest.mark.parametrize("sql", VALUES)
def test_the_literal_is_the_value_of_the_condition(sql: str) -> None:
    [found] = [one for one in predicates(parse(FILTERS[sql], SCHEMA)) if isinstance(one, Predicate) and one.op == "eq"]
    assert list(found.values) == [VALUES[sql]]


def test_the_record_has_the_rows_that_spark_answered() -> None:
    for one in RECORDED["exchanges"]:
        if one["sql"] in KEYS:
            assert set(one["rows"]) <= KEYS[one["sql"]]
