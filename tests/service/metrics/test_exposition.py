"""service/metrics/exposition.py: the metrics, their labels, and their sums over workers."""

import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gnomon.service.application import create_app
from gnomon.service.costs import Cost
from gnomon.service.metrics.multiprocess import Exchange
from gnomon.service.settings.table import Settings
from tests.service.lake import TWICE, Client, add_day

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "observability.md"
Labels = tuple[tuple[str, str], ...]


def samples(text: bytes) -> dict[tuple[str, Labels], float]:
    """All samples by name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def of_collector(collector: Collector) -> dict[tuple[str, Labels], float]:
    """The samples of one collector, through the text format."""
    registry = CollectorRegistry()
    registry.register(collector)
    return samples(generate_latest(registry))


def scraped(client: Client) -> dict[tuple[str, Labels], float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(answer.content)


def requests(route: str, status: int, index: str = "shadow", method: str = "GET") -> tuple[str, Labels]:
    labels = (("index", index), ("method", method), ("route", route), ("status", str(status)))
    return "gnomon_requests_total", labels


def test_requests_are_counted_by_templates_and_known_names_alone(crawl_settings: Settings) -> None:
    client = Client(crawl_settings)
    for target in (
        "/rows/second",
        "/rows/no",
        "/rows/x/y/z?_limit=a",
        "/indexes/shadow/rows/second",
        "/rows?url=second",
    ):
        client.get(target)
    for target in ("/indexes/no-such/rows/x", "/no/such/path", "/docs", "/healthz"):
        client.get(target)
    client.ask("DELETE", "/rows/x")
    client.ask("BREW", "/rows/x")
    found = scraped(client)
    expected = {
        requests("/rows/{key}", 200): 1,
        requests("/rows/{key}", 404): 1,
        requests("/rows/{key}", 400): 1,
        requests("/rows", 200): 1,
        requests("/indexes/{name}/rows/{key}", 200): 1,
        requests("/indexes/{name}/rows/{key}", 404, ""): 1,
        requests("other", 404, ""): 1,
        requests("/docs", 200, ""): 1,
        requests("/healthz", 200, ""): 1,
        requests("/rows/{key}", 405, method="DELETE"): 1,
        requests("/rows/{key}", 405, method="other"): 1,
    }
    assert {key: value for key, value in found.items() if key[0] == "gnomon_requests_total"} == expected
    of_keys = (("index", "shadow"), ("route", "/rows/{key}"))
    assert found["gnomon_request_seconds_count", of_keys] == 5
    assert found["gnomon_request_seconds_bucket", (of_keys[0], ("le", "+Inf"), of_keys[1])] == 5


def test_what_look_ups_cost_is_counted(crawl_settings: Settings) -> None:
    client = Client(crawl_settings)
    told = client.get("/rows/second?_explain=true").json()["explain"]
    client.get("/rows/no")
    batch = client.post({"keys": [TWICE, "second", "no"]}, "?_explain=true").json()["explain"]
    found, index = scraped(client), (("index", "shadow"),)
    assert found["gnomon_lookups_total", index] == 5
    assert found["gnomon_source_read_bytes_total", index] == told["source"]["bytes"] + batch["source"]["bytes"]
    assert found["gnomon_index_read_bytes_total", index] >= told["index"]["bytes"] + batch["index"]["bytes"]
    assert found["gnomon_nodes_total", index] >= 2
    assert found["gnomon_filter_checks_total", index] >= 5
    for step, answers in (("lookup", 3), ("fetch", 3), ("encode", 2)):
        assert found["gnomon_step_seconds_count", (("step", step),)] == answers


def test_what_is_too_large_is_counted_as_rejected(crawl_settings: Settings) -> None:
    client = Client(replace(crawl_settings, max_batch_keys=1))
    assert client.post({"keys": ["a", "b"]}).status_code == 413
    assert scraped(client)["gnomon_rejected_total", (("reason", "request_too_large"),)] == 1


def test_the_snapshot_is_told(own: Client, tmp_path: Path) -> None:
    index = (("index", "shadow"),)
    assert scraped(own)["gnomon_snapshot_number", index] == 1
    add_day(tmp_path, "2026-01-03", ["third"])
    own.served.refresh()
    found = scraped(own)
    assert found["gnomon_snapshot_number", index] == 2
    assert found["gnomon_snapshot_refused", index] == 0
    assert 0 <= found["gnomon_snapshot_age_seconds", index] < 3600


def test_caches_and_threads_and_what_is_open_are_told(crawl_settings: Settings) -> None:
    client = Client(crawl_settings)
    client.get("/rows/second")
    before = scraped(client)
    client.get("/rows/second?_columns=url")
    found = scraped(client)
    labels = (("cache", "index_files"), ("index", "shadow"))
    assert found["gnomon_cache_hits_total", labels] > before["gnomon_cache_hits_total", labels]
    assert found["gnomon_cache_misses_total", labels] == before["gnomon_cache_misses_total", labels] > 0
    assert found["gnomon_cache_bytes", labels] > 0
    for name, value in (("index_open", 1), ("index_unreachable", 0), ("requests_waiting", 0), ("threads_stuck", 0)):
        assert found[f"gnomon_{name}", (("index", "shadow"),)] == value
    assert not [name for name, _ in found if name == "gnomon_coverage_files"], "nobody has looked yet"
    assert client.served.cover()
    found = scraped(client)
    for state in ("new", "changed", "vanished"):
        assert found["gnomon_coverage_files", (("index", "shadow"), ("state", state))] == 0
    assert 0 <= found["gnomon_coverage_age_seconds", (("index", "shadow"),)] < 3600


def test_an_index_that_is_not_open_is_told(tmp_path: Path, crawl_settings: Settings) -> None:
    missing = replace(crawl_settings, indexes=(*crawl_settings.indexes, f"gone={tmp_path}"))
    found = samples(create_app(missing, patient=True).state.metrics.text())
    assert found["gnomon_index_open", (("index", "shadow"),)] == 1
    assert found["gnomon_index_open", (("index", "gone"),)] == 0
    assert found["gnomon_index_unreachable", (("index", "gone"),)] == 1
    assert ("gnomon_snapshot_number", (("index", "gone"),)) not in found


def test_workers_are_summed_also_those_that_have_ended(crawl_settings: Settings, tmp_path: Path) -> None:
    with Exchange(tmp_path) as exchange:
        slots = [exchange.slot() for _ in range(3)]
        apps = [create_app(crawl_settings, slot=slot) for slot in slots]
        for app, reason in zip(apps, (None, None, "overloaded"), strict=True):
            for _ in range(2):
                app.state.metrics.count(("/rows/{key}", "GET", 200, "shadow"), 0.004, Cost(), None)
            app.state.metrics.count(("/rows/{key}", "GET", 503, "shadow"), 0.004, Cost(), reason)
            app.state.metrics.text()
        exchange.ended(slots[0], asked=False)
        for app in apps[1:]:
            found = samples(app.state.metrics.text())
            of_keys = (("index", "shadow"), ("route", "/rows/{key}"))
            assert found[requests("/rows/{key}", 200)] == 6
            assert found["gnomon_request_seconds_count", of_keys] == 9
            assert found["gnomon_request_seconds_sum", of_keys] == pytest.approx(0.036)
            assert found["gnomon_request_seconds_bucket", (of_keys[0], ("le", "0.003"), of_keys[1])] == 0
            assert found["gnomon_request_seconds_bucket", (of_keys[0], ("le", "0.005"), of_keys[1])] == 9
            assert found["gnomon_rejected_total", (("reason", "overloaded"),)] == 1
            assert found["gnomon_worker_restarts_total", ()] == 1
            assert found["gnomon_snapshot_number", (("index", "shadow"),)] == 1, "no sum"
            assert found["gnomon_build_info", (("version", version("gnomon-index")),)] == 1, "no sum"


def test_the_docs_show_the_metrics_and_every_name_is_well_formed(crawl: Client) -> None:
    table = crawl.app.state.metrics.table()
    assert table in PAGE.read_text()
    names = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert len(names) == len(set(names))
    told = {family.name for family in text_string_to_metric_families(crawl.get("/metrics").text)}
    assert {name.removesuffix("_total") for name in names} == {name for name in told if name.startswith("gnomon_")}


def test_head_of_metrics_and_no_other_method(crawl: Client) -> None:
    assert crawl.ask("HEAD", "/metrics").status_code == 200
    assert crawl.ask("POST", "/metrics").status_code == 405
