"""service/api/openapi.py: the document has every route with its parameters, answers, failures and headers."""

from dataclasses import replace
from typing import Any

import pytest

from gnomon.service.api.openapi import MEANING, DocumentedRoute
from gnomon.service.api.openapi import document as made
from gnomon.service.api.responses import ARROW, CSV, JSON
from gnomon.service.errors import MEDIA_TYPE, TABLE
from gnomon.service.http.requests import MOST_NUMBER, NAMES, OF_RANGES
from gnomon.service.settings.table import Settings
from tests.service.lake import Client

ROWS = ("/rows", "/rows/{key}", "/indexes/{name}/rows", "/indexes/{name}/rows/{key}")
# Answered before the routes: by the request parser, the rate limit, or a fault.
OF_ALL = {"400", "408", "414", "429", "431", "500", "503"}


@pytest.fixture(scope="module")
def document(crawl: Client) -> dict[str, Any]:
    found: dict[str, Any] = crawl.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, told) for path, methods in document["paths"].items() for method, told in methods.items()]


def test_every_route_is_told(crawl: Client, document: dict[str, Any]) -> None:
    told = {(path, method.upper()) for path, method, _ in operations(document)}
    assert {(path, method) for path in ROWS for method in ("GET", "HEAD")} <= told
    assert {("/rows", "POST"), ("/indexes/{name}/rows", "POST")} <= told
    plain = ("/indexes", "/indexes/{name}", "/healthz", "/readyz")
    assert {(path, method) for path in plain for method in ("GET", "HEAD")} <= told
    assert told == {(one.path_format, one.method) for one in crawl.app.routes if isinstance(one, DocumentedRoute)}


def test_every_operation_has_a_name_of_its_own_and_a_tag(document: dict[str, Any]) -> None:
    names = [told["operationId"] for _, _, told in operations(document)]
    assert len(set(names)) == len(names)
    assert {"getRow", "getRows", "postRows", "getIndexRow", "getIndexes", "getIndex"} <= set(names)
    tags = {tag["name"] for tag in document["tags"]}
    assert all(set(told["tags"]) <= tags and told["tags"] for _, _, told in operations(document))


def test_parameters_are_told_with_their_bounds(document: dict[str, Any]) -> None:
    for path in ROWS:
        for method, told in document["paths"][path].items():
            names = [one["name"] for one in told["parameters"]]
            before = ["name"] if path.startswith("/indexes") else []
            before += [] if method == "post" else ["key"]
            takes_ranges = path.endswith("/rows") and method != "post"
            options = [name for name in NAMES if takes_ranges or name not in OF_RANGES]
            assert names == [*before, *options], (path, method)
    by_name = {one["name"]: one for one in document["paths"]["/indexes/{name}/rows"]["get"]["parameters"]}
    assert by_name["name"]["schema"]["maxLength"] == 64
    assert (by_name["_limit"]["schema"]["minimum"], by_name["_limit"]["schema"]["maximum"]) == (0, MOST_NUMBER)
    assert by_name["_where"]["schema"]["items"]["pattern"] == "^[^=]+="
    assert (by_name["key"]["style"], by_name["key"]["explode"]) == ("form", True)
    assert document["components"]["schemas"]["BatchRequest"]["properties"]["keys"]["maxItems"] == 10_000


def test_rows_are_told_in_each_media_type(document: dict[str, Any]) -> None:
    for path in ROWS:
        for method, told in document["paths"][path].items():
            content = told["responses"]["200"].get("content")
            assert (set(content) if content else None) == (None if method == "head" else {JSON, ARROW, CSV})


def test_a_page_of_a_range_is_told_beside_the_rows_of_a_key(document: dict[str, Any]) -> None:
    for path in ("/rows", "/indexes/{name}/rows"):
        found = document["paths"][path]["get"]["responses"]["200"]
        shapes = [choice["$ref"].rpartition("/")[2] for choice in found["content"][JSON]["schema"]["anyOf"]]
        assert shapes == ["RowsAnswer", "RangeAnswer"]
        assert "gnomon.next" in found["content"][ARROW]["schema"]["anyOf"][1]["description"]
        assert "Link" in found["headers"]


def test_failures_are_told_with_their_headers(document: dict[str, Any]) -> None:
    for path, method, told in operations(document):
        if path not in (*ROWS, "/indexes", "/indexes/{name}"):
            continue
        responses = told["responses"]
        assert OF_ALL | {"401", "403"} <= set(responses), path
        assert ("404" in responses) == (path != "/indexes")
        reads_rows = path in ROWS and method != "head"
        assert ({"409", "413", "501"} <= set(responses)) == reads_rows
        assert ("406" in responses) == (path in ROWS)
        assert ("304" in responses) == (path in ROWS and method == "get")
        for status, response in responses.items():
            assert "X-Request-Id" in response["headers"]
            assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
            assert ("WWW-Authenticate" in response["headers"]) == (status == "401")
            if status not in ("200", "304") and method != "head":
                assert list(response["content"]) == [MEDIA_TYPE]


def test_every_status_of_the_table_of_errors_is_told() -> None:
    assert {status for status, _ in TABLE.values()} <= set(MEANING)


def test_a_token_is_told_as_needed_only_where_it_is(crawl_settings: Settings, document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{}, {"bearer": []}]
    guarded = replace(crawl_settings, tokens=(f"me sha256:{'0' * 64}",))
    assert made(Client(guarded).app.routes, guarded, "")["security"] == [{"bearer": []}]


def test_examples_stand_where_they_belong(document: dict[str, Any]) -> None:
    rows = document["paths"]["/rows/{key}"]["get"]["responses"]
    assert "a row" in rows["200"]["content"][JSON]["examples"]
    assert "a key that is not there" in rows["404"]["content"][MEDIA_TYPE]["examples"]
    batch = document["paths"]["/rows"]["post"]["requestBody"]["content"][JSON]["examples"]
    assert batch["a batch"]["value"]["columns"] == ["title"]
