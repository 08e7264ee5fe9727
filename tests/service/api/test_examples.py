"""service/api/examples.json: each example equals an answer of a service, and each route has one."""

import re
from pathlib import Path
from typing import Any

import pytest

from gnomon.service.api.openapi import EXAMPLES
from tests.service.example_lake import make_examples
from tests.service.lake import Client

# Values that differ between runs, or between versions of a library that writes files: compared by their type.
VARIES = re.compile(r".*(_us|bytes|microseconds|committed_at|age_seconds|file|offset|begin_us|compiled)")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    client = Client(make_examples(tmp_path_factory.mktemp("examples")))
    for served in client.app.state.service.indexes:
        assert served.cover()
    return client


def fixed(value: Any, name: str = "") -> Any:
    """The value, with varying parts replaced by their type."""
    if isinstance(value, dict):
        return {member: fixed(one, member) for member, one in value.items()}
    if isinstance(value, list):
        return [fixed(one, name) for one in value]
    return type(value).__name__ if VARIES.fullmatch(name) and not name.startswith("max_") else value


def without_cost(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without its steps, which the test compares separately: data in memory is not read again."""
    return {name: value for name, value in answer.items() if name != "explain"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_is_answered(client: Client, name: str) -> None:
    example = EXAMPLES[name]
    response = client.ask(example.method, example.target, example.body)
    assert response.status_code == example.status
    assert fixed(without_cost(response.json())) == fixed(without_cost(example.answer))


def test_the_cost_in_an_example_is_that_of_the_first_answer(tmp_path: Path) -> None:
    [example] = [one for one in EXAMPLES.values() if "explain" in one.answer]
    answer = Client(make_examples(tmp_path)).get(example.target).json()
    assert fixed(answer["explain"]) == fixed(example.answer["explain"])


def test_every_route_has_an_example(client: Client) -> None:
    told = {path for path in client.get("/openapi.json").json()["paths"] if path != "/metrics"}
    assert {example.route for example in EXAMPLES.values() if example.status == 200} == told


def test_a_change_of_an_answer_is_seen() -> None:
    answer = EXAMPLES["an index"].answer
    for changed in (
        {**answer, "segments": 2},
        {**answer, "index_bytes": "2253"},
        {name: value for name, value in answer.items() if name != "refused"},
    ):
        assert fixed(changed) != fixed(answer)
