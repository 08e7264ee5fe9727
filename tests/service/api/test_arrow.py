"""service/api/answers.py: rows as an Arrow stream, in the types of the source, with the metadata of JSON answers."""

import datetime as dt
import decimal
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from gnomon.jobs.build import write_btree
from gnomon.service.api.responses import ARROW
from gnomon.service.settings.table import Settings
from gnomon.shadow import to_json
from gnomon.shadow.values.row_values import python_values
from tests.service.lake import TWICE, Client, rows
from tests.shadow.make_index import index_source, write_source

ACCEPT = {"accept": ARROW}
NS = 1767270600_123456789
FIRST, BEYOND = -62135596800_000000, 253402300800_000000  # 0001-01-01 and 10000-01-01, in microseconds
MOMENT = pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.uint64()), ("raw", pa.binary())])
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "i8": (pa.int8(), -128),
    "i64": (pa.int64(), -(2**63)),
    "u8": (pa.uint8(), 255),
    "u64": (pa.uint64(), 2**64 - 1),
    "half": (pa.float16(), np.float16(0.1)),
    "nan": (pa.float64(), float("nan")),
    "inf": (pa.float32(), float("-inf")),
    "text": (pa.string(), "Straße\0日本"),
    "large": (pa.large_string(), "x" * 1000),
    "binary": (pa.binary(), b"\xff\0"),
    "fixed": (pa.binary(2), b"ab"),
    "uuid": (pa.uuid(), bytes(range(16))),
    "dec38": (pa.decimal128(38, 2), decimal.Decimal("9" * 36 + ".25")),
    "dec76": (pa.decimal256(76, 10), decimal.Decimal("1" * 64 + ".0123456789")),
    "day": (pa.date32(), -719163),
    "time_ms": (pa.time32("ms"), 45_000_005),
    "time_ns": (pa.time64("ns"), 1),
    "first": (pa.timestamp("us", "Asia/Tokyo"), FIRST),
    "beyond": (pa.timestamp("us"), BEYOND),
    "ns": (pa.timestamp("ns", "UTC"), NS),
    "ns_local": (pa.timestamp("ns"), NS),
    "span": (pa.duration("ns"), 1),
    "nothing": (pa.null(), None),
    "list": (pa.list_(pa.int32()), [1, None, 3]),
    "lists": (pa.list_(pa.list_(pa.string())), [["a", None], None, []]),
    "struct": (pa.struct([("d", pa.decimal128(5, 2)), ("s", pa.string())]), {"d": decimal.Decimal("1.50"), "s": None}),
    "moments": (pa.list_(MOMENT), [{"at": FIRST, "n": 2**64 - 1, "raw": b"\xff"}, None]),
    "map": (pa.map_(pa.string(), pa.binary()), [("é", b"\xff"), ("a", None)]),
    "pairs": (pa.map_(pa.int32(), pa.list_(pa.date32())), [(7, [dt.date(9999, 12, 31)])]),
}


def every_type() -> pa.Table:
    """A row with a value of each type, and one of nulls."""
    arrays = {name: pa.array([value, None], kind) for name, (kind, value) in COLUMNS.items()}
    return pa.table({"k": ["value", "null"], **arrays})


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder = tmp_path_factory.mktemp("types")
    write_source(folder / "lake", {"p.parquet": every_type()})
    index_source(folder / "lake", folder / "shadow", ["k"])
    return Client(Settings(indexes=[str(folder / "shadow")]))


def table(response: httpx.Response) -> pa.Table:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    assert response.headers["vary"] == "Accept, Accept-Encoding"
    return pa.ipc.open_stream(io.BytesIO(response.content)).read_all()


def told(answer: pa.Table) -> dict[str, Any]:
    """The metadata of the rows."""
    return {name.decode().removeprefix("gnomon."): json.loads(v) for name, v in answer.schema.metadata.items()}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_value_of_each_type_comes_as_it_stands_in_the_source(typed: Client, name: str) -> None:
    source = every_type()
    for row, key in enumerate(("value", "null")):
        answer = table(typed.get(f"/rows/{key}?_columns={name}", ACCEPT))
        kind = COLUMNS[name][0]
        assert answer.schema.field(name).type == kind
        expected = source.column(name).slice(row, 1)
        assert repr(python_values(answer.column(name))) == repr(python_values(expected))
        if name != "nan":
            assert answer.column(name).combine_chunks().equals(expected.combine_chunks())


def test_json_has_the_same_values(typed: Client) -> None:
    for key in ("value", "null"):
        answer = table(typed.get(f"/rows/{key}", ACCEPT))
        of_arrow = {name: python_values(answer.column(name))[0] for name in answer.column_names}
        assert json.loads(to_json(of_arrow)) == rows(typed.get(f"/rows/{key}"))[0]


def test_key_count_and_snapshot_stand_in_the_metadata(crawl: Client) -> None:
    answer = table(crawl.get(f"/rows/{TWICE}?_limit=2&_columns=n,dt", ACCEPT))
    assert told(answer) == {"key": {"url": TWICE}, "count": 3, "snapshot": 1}
    assert answer.schema.names == ["n", "dt"]
    assert answer.num_rows == 2
    assert answer.to_pylist() == [
        {name: row[name] for name in ("n", "dt")} for row in rows(crawl.get(f"/rows/{TWICE}?_limit=2"))
    ]


def test_no_row_is_asked_for_and_the_columns_are_there(crawl: Client) -> None:
    answer = table(crawl.get(f"/rows/{TWICE}?_limit=0", ACCEPT))
    assert (answer.num_rows, told(answer)["count"]) == (0, 3)
    assert answer.schema.field("n").type == pa.int64()
    assert answer.schema.field("at").type == pa.timestamp("us", "UTC")
    assert answer.schema.names == ["url", "n", "price", "raw", "at", "dt"]


def test_a_composite_key_is_told_by_name(orders: Client) -> None:
    answer = table(orders.get("/rows?id=2&country=de", ACCEPT))
    assert told(answer)["key"] == {"country": "de", "id": 2}
    assert answer.to_pylist() == [{"country": "de", "id": 2, "day": dt.date(2026, 1, 2)}]


def test_the_rows_of_a_batch_say_which_key_they_are_of(crawl: Client) -> None:
    body = {"keys": ["second", "no", TWICE, "second"], "columns": ["url", "dt"]}
    answer = table(crawl.ask("POST", "/rows", body, ACCEPT))
    assert answer.schema.names == ["key_number", "url", "dt"]
    assert answer.schema.field("key_number").type == pa.int64()
    assert answer.column("key_number").to_pylist() == [0, 2, 2, 2, 3]
    assert answer.column("url").to_pylist() == ["second", TWICE, TWICE, TWICE, "second"]
    assert told(answer) == {"counts": [1, 0, 3, 1], "snapshot": 1}
    nothing = table(crawl.ask("POST", "/rows", {"keys": []}, ACCEPT))
    assert (nothing.num_rows, told(nothing)) == (0, {"counts": [], "snapshot": 1})


def test_the_cost_stands_in_the_metadata_too(crawl: Client) -> None:
    of_one = told(table(crawl.get("/rows/second?_explain=true", ACCEPT)))["explain"]
    assert of_one["steps"][0]["step"] == "key"
    of_batch = told(table(crawl.ask("POST", "/rows?_explain=true", {"keys": ["second"]}, ACCEPT)))["explain"]
    assert set(of_batch) == {"index", "source"}


@pytest.mark.parametrize(
    ("target", "status"),
    [("/rows/nobody", 404), ("/rows/%ff", 400), ("/rows/second?_columns=no", 400), ("/rows/second?_snapshot=9", 404)],
)
def test_a_failure_is_a_problem_also_where_arrow_is_asked_for(crawl: Client, target: str, status: int) -> None:
    response = crawl.get(target, ACCEPT)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert response.json() == crawl.get(target).json()


def test_a_key_that_fails_fails_the_batch_and_is_named(crawl: Client) -> None:
    response = crawl.ask("POST", "/rows", {"keys": ["second", 7]}, ACCEPT)
    assert response.status_code == 400
    assert response.json()["key_number"] == 1
    assert response.json()["detail"] == "key 1 of the batch: key column url: expected string, found 7"


def test_what_no_route_gives_is_refused(crawl: Client) -> None:
    for method, target, body in (
        ("GET", "/rows/second", None),
        ("POST", "/rows", {"keys": []}),
        ("HEAD", "/rows", None),
    ):
        response = crawl.ask(method, target, body, {"accept": "text/plain"})
        assert response.status_code == 406
    assert crawl.get("/rows/second", {"accept": "text/plain"}).json()["title"] == "Not acceptable"


def test_head_tells_the_media_type_of_the_answer(crawl: Client) -> None:
    response = crawl.ask("HEAD", "/rows/second", None, ACCEPT)
    assert (response.status_code, response.headers["content-type"], response.content) == (200, ARROW, b"")


def test_an_answer_beyond_a_limit_is_refused(crawl_settings: Settings) -> None:
    client = Client(replace(crawl_settings, max_rows=2))
    response = client.get(f"/rows/{TWICE}", ACCEPT)
    assert (response.status_code, response.json()["title"]) == (413, "Answer too large")
    assert "the key has 3 rows" in response.json()["detail"]
    assert client.get(f"/rows/{TWICE}?_limit=2", ACCEPT).status_code == 200


def test_a_folder_of_values_gives_arrow_too(tmp_path: Path) -> None:
    write_btree(pa.table({"k": ["a/b", "c"], "v": pa.array([1, 2], pa.int32())}), tmp_path, ["k"], buckets=2)
    answer = table(Client(Settings(indexes=[str(tmp_path)])).get("/rows/a/b", ACCEPT))
    assert answer.to_pylist() == [{"k": "a/b", "v": 1}]
    assert answer.schema.field("v").type == pa.int32()


def test_hidden_columns_are_not_given(crawl_settings: Settings) -> None:
    client = Client(replace(crawl_settings, hidden_columns={"shadow": ("n", "raw")}))
    answer = table(client.get("/rows/second", ACCEPT))
    assert answer.schema.names == ["url", "price", "at", "dt"]


def test_a_row_comes_in_the_types_of_its_own_file_whatever_another_file_has(tmp_path: Path) -> None:
    """Another program rewrote a file, with timestamps that have no zone."""
    utc = pa.table({"k": ["a", "both"], "at": pa.array([NS // 1000] * 2, pa.timestamp("us", "UTC"))})
    naive = pa.table({"k": ["b", "both"], "at": pa.array([NS // 1000] * 2, pa.timestamp("us"))})
    write_source(tmp_path / "lake", {"1.parquet": utc, "2.parquet": naive})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    for key, kind in (("a", pa.timestamp("us", "UTC")), ("b", pa.timestamp("us"))):
        assert table(client.get(f"/rows/{key}", ACCEPT)).schema.field("at").type == kind
    both = table(client.get("/rows/both", ACCEPT))
    assert both.schema.field("at").type == pa.timestamp("us", "UTC")  # one type for both, as `table_many` has it
    assert both.column("at").cast(pa.int64()).to_pylist() == [NS // 1000] * 2
    assert len(rows(client.get("/rows/both"))) == 2
    batch = client.ask("POST", "/rows", {"keys": ["a", "gone"]}, ACCEPT)
    assert table(batch).schema.field("at").type == pa.timestamp("us", "UTC")
