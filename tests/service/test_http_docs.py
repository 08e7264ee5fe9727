"""docs/reference/http.md is right about errors, parameters and answers."""

import json
import re
from pathlib import Path

import pytest

from gnomon.service.errors import ROUTING, TABLE
from gnomon.service.http.requests import NAMES
from tests.service.example_lake import make_examples
from tests.service.lake import Client

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()


def test_the_table_of_errors_is_that_of_the_service() -> None:
    told = re.findall(r"^\| ([0-9]{3}) \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert {(int(status), title) for status, title in told} == set(TABLE.values()) | set(ROUTING.items())
    assert len(told) == len(set(told))


def test_the_table_of_options_is_that_of_the_service() -> None:
    assert re.findall(r"^\| `(\w+)=[^`]*` \|", PAGE, re.MULTILINE) == list(NAMES)


def test_the_commands_answer_what_stands_below_them(tmp_path: Path) -> None:
    client = Client(make_examples(tmp_path))
    shown = re.findall(r"^\$ curl -s '?http://localhost:8000(\S+?)'?(?: -d '(.*)')?\n(\{.*\})$", PAGE, re.MULTILINE)
    assert len(shown) == 5
    for target, body, answer in shown:
        response = client.ask("POST" if body else "GET", target, json.loads(body) if body else None)
        assert response.json() == json.loads(answer)


@pytest.mark.parametrize("name", re.findall(r"^\| `(?:GET|POST) (/[^`?]*)", PAGE, re.MULTILINE))
def test_every_route_is_one(crawl: Client, name: str) -> None:
    assert name in crawl.get("/openapi.json").json()["paths"]
