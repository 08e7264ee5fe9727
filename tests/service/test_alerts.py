"""deploy/prometheus-alerts.yml: every rule uses existing metrics and labels."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.lake import Client

FILE = Path(__file__).parents[2] / "deploy" / "prometheus-alerts.yml"
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
OF_PROMETHEUS = {"up": {"job", "instance"}}
FUNCTIONS = {"sum", "rate", "increase", "histogram_quantile", "by"}


@pytest.fixture(scope="module")
def known(crawl: Client) -> dict[str, set[str]]:
    """The labels of each metric, by the names that queries use."""
    found = dict(OF_PROMETHEUS)
    for name, kind, labels in re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|", crawl.app.state.metrics.table(), re.MULTILINE
    ):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + suffix] = {*re.findall(r"`(\w+)`", labels), "instance", "le"}
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression, with its label selectors."""
    for name, chosen in re.findall(
        r"\b([a-z_]+)\b(?!\s*\()(?:\{(.*?)\})?", re.sub(r"by \(.*?\)|\[\w+\]", "", expression)
    ):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any], known: dict[str, set[str]]) -> None:
    found = list(selectors(rule["expr"]))
    assert found
    for name, labels in found:
        assert labels <= known[name]
    for labels in re.findall(r"by \((.*?)\)", rule["expr"]):
        assert all({*re.split(r",\s*", labels)} <= known[name] for name, _ in found)
    assert set(re.findall(r"([a-z_]+)\s*\(", rule["expr"])) <= FUNCTIONS
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"deploy/README.md#{rule['alert'].lower()}"
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))


def test_each_alert_has_a_name_of_its_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) >= 12
