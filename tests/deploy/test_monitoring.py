"""The alerts and the dashboard of deploy/, in the Prometheus of Debian: promtool for each alert's cause and its time, a
Prometheus that scrapes services for what their metrics are."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import yaml

from gnomon.service.token_lines import new_token
from gnomon.shadow.metadata import json_files
from tests.deploy.deployed import DEPLOY, ROOT
from tests.service.lake import Client, crawl_table, make_crawl
from tests.service.live import live
from tests.shadow.make_index import write_source
from tests.stores.process import free_port, server

REQUIRED = "GNOMON_TEST_PROMETHEUS"
SECONDS = 90.0
RULES, CONFIG = DEPLOY / "prometheus-alerts.yml", DEPLOY / "prometheus.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]
MINUTES = {"m": 1, "h": 60}

OF_INDEX = 'instance="a", index="crawl"'
ANSWERS = f'gnomon_requests_total{{{OF_INDEX}, route="/rows/{{key}}", method="GET", status="%s"}}'
BUCKET = f'gnomon_request_seconds_bucket{{{OF_INDEX}, route="/rows/{{key}}", le="%s"}}'
REJECTED = 'gnomon_rejected_total{instance="a", reason="%s"}'
FILES = f'gnomon_coverage_files{{{OF_INDEX}, state="%s"}}'
UP, DIED = 'up{job="gnomon", instance="a"}', 'gnomon_worker_restarts_total{instance="a"}'
DROPPED, TOKENS = 'gnomon_log_dropped_total{instance="a"}', 'gnomon_tokens_refused{instance="a"}'


def of_index(name: str) -> str:
    return f"gnomon_{name}{{{OF_INDEX}}}"


# Series by the minute, in promtool's form: the first value, and what each minute adds. All are as bad as calm allows.
CALM = {
    UP: "1+0",
    ANSWERS % 200: "0+991",
    ANSWERS % 503: "0+9",
    BUCKET % "0.5": "0+900",
    BUCKET % "1.0": "0+991",
    BUCKET % "2.0": "0+1000",
    BUCKET % "+Inf": "0+1000",
    REJECTED % "rate": "0+5",
    REJECTED % "overloaded": "7+0",
    REJECTED % "timeout": "7+0",
    of_index("index_open"): "1+0",
    of_index("threads_stuck"): "0+0",
    of_index("index_unreachable"): "0+0",
    of_index("snapshot_refused"): "0+0",
    of_index("snapshot_age_seconds"): f"{36 * 3600}+0",
    of_index("coverage_age_seconds"): "1800+0",
    **{FILES % state: "0+0" for state in ("new", "changed", "vanished")},
    DIED: "0+0.1",
    TOKENS: "0+0",
    DROPPED: "7+0",
}
CAUSES: dict[str, list[dict[str, str]]] = {
    "GnomonDown": [{UP: "0+0"}],
    "GnomonIndexNotOpen": [{of_index("index_open"): "0+0"}],
    "GnomonErrors": [{ANSWERS % 503: "0+11"}],
    "GnomonSlow": [{BUCKET % "1.0": "0+989"}],
    "GnomonOverloaded": [{REJECTED % "overloaded": "0+1"}],
    "GnomonTimeouts": [{REJECTED % "timeout": "0+1"}],
    "GnomonThreadsStuck": [{of_index("threads_stuck"): "1+0"}],
    "GnomonStorageUnreachable": [{of_index("index_unreachable"): "1+0"}],
    "GnomonSnapshotRefused": [{of_index("snapshot_refused"): "1+0"}],
    "GnomonSnapshotOld": [{of_index("snapshot_age_seconds"): f"{36 * 3600 + 1}+0"}],
    "GnomonSourceNotCovered": [{FILES % "new": "1+0"}],
    "GnomonSourceChanged": [{FILES % "changed": "1+0"}, {FILES % "vanished": "1+0"}],
    "GnomonCoverageUnknown": [{of_index("coverage_age_seconds"): "1801+0"}],
    "GnomonWorkersDie": [{DIED: "0+0.2"}],
    "GnomonTokensRefused": [{TOKENS: "1+0"}],
    "GnomonLogDropped": [{DROPPED: "7+0.1"}],
}


def rules() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        why = f"no {name} on the PATH; deploy/setup.sh --prometheus installs it"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{why} ({REQUIRED}=required)")
        pytest.skip(why)
    return found


def promtool(*arguments: str) -> None:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
def test_prometheus_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    promtool("check", "config", str(CONFIG))


def minutes(duration: str) -> int:
    return int(duration[:-1]) * MINUTES[duration[-1]]


def case(alert: str, cause: Mapping[str, str]) -> dict[str, Any]:
    """A test of promtool: the alert alone fires, not before its time; with no cause none does."""
    waits = minutes(rules()[alert].get("for", "0m")) if cause else 26 * 60
    end = waits + 20  # rates are over 15 minutes at most
    firing = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})'}
    told = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if cause else []
    early = [{**firing, "eval_time": f"{waits - 1}m", "exp_samples": []}] if waits else []
    return {
        "name": alert,
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{of}x{end}"} for name, of in {**CALM, **cause}.items()],
        "promql_expr_test": [*early, {**firing, "eval_time": f"{end}m", "exp_samples": told}],
    }


@pytest.mark.process
def test_each_alert_fires_for_its_cause_alone_after_its_time_and_none_in_calm(tmp_path: Path) -> None:
    assert rules().keys() == CAUSES.keys()
    cases = [case("calm", {}), *(case(alert, cause) for alert, causes in CAUSES.items() for cause in causes)]
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(tmp_path / "test.yml"))


@dataclass
class Monitored:
    """A Prometheus, and what it scrapes: a service that is well, and one for each of some alerts, broken its way."""

    port: int
    services: dict[str, int]
    token: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query, without those that are no number."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
        return [one for one in found if math.isfinite(float(one["value"][1]))]

    def firing(self) -> set[tuple[str, str]]:
        found = [one["metric"] for one in self.query('ALERTS{alertstate="firing"}')]
        return {(one["instance"], one["alertname"]) for one in found}

    def ask(self, service: str, target: str, body: bytes | None = None, token: str | None = None) -> int:
        headers = {"authorization": f"Bearer {token or self.token}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.services[service]}{target}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def work(self) -> None:
        """Ask the well service once for all that the dashboard shows, and the broken one for a row."""
        statuses = [
            self.ask(WELL, "/rows/second"),
            self.ask(WELL, "/rows/second?_explain=true"),
            self.ask(WELL, f"/rows/absent{time.monotonic()}"),
            self.ask(WELL, "/rows", json.dumps({"keys": ["twice", "second"]}).encode()),
            self.ask(WELL, "/rows/second", token="wrong"),
            self.ask("GnomonErrors", f"/rows/second?_where=dt={quote('2026-01-02')}"),
        ]
        assert statuses == [200, 200, 404, 200, 401, 503]


WELL = "well"


def broken(alert: str, folder: Path) -> None:
    """Break the service of `folder` so that it is a cause of the alert."""
    lake, index = folder / "lake", folder / "shadow"
    match alert:
        case "GnomonErrors":
            lake.rename(folder / "gone")
        case "GnomonStorageUnreachable":
            index.rename(folder / "gone")
        case "GnomonSnapshotRefused":
            (index / "_shadow" / "snapshots" / f"{2:020}.json").write_text("{")
        case "GnomonSnapshotOld":
            [snapshot] = (index / "_shadow" / "snapshots").glob("*.json")
            content = json.loads(snapshot.read_text())
            del content[json_files.CHECKSUM]
            snapshot.write_bytes(json_files.encode(content | {"committed_at": "2026-01-01T00:00:00+00:00"}))
        case "GnomonSourceNotCovered":
            write_source(lake, {"dt=2026-01-03/p.parquet": crawl_table(["new"])})
        case "GnomonSourceChanged":
            write_source(lake, {"dt=2026-01-02/p.parquet": crawl_table(["twice", "second", "third"])})
        case "GnomonTokensRefused":
            with (folder / "tokens").open("a") as file:
                file.write("no hash\n")


AT_START = ("GnomonSnapshotOld",)
BROKEN = (
    *AT_START,
    "GnomonErrors",
    "GnomonStorageUnreachable",
    "GnomonSnapshotRefused",
    "GnomonSourceNotCovered",
    "GnomonSourceChanged",
    "GnomonTokensRefused",
)


def configuration(folder: Path, services: Mapping[str, int], token: str) -> Path:
    """deploy/prometheus.yml with other addresses and shorter times: seconds."""
    groups = yaml.safe_load(RULES.read_text())
    for rule in groups["groups"][0]["rules"]:
        rule["for"] = "5s"
    (folder / "rules.yml").write_text(yaml.safe_dump(groups))
    config = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    config["rule_files"] = ["rules.yml"]
    [job] = config["scrape_configs"]
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in services.items()
    ]
    job["authorization"] = {"credentials": token}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return folder / "prometheus.yml"


@contextmanager
def served(index: str, variables: Mapping[str, str]) -> Iterator[int]:
    """The port of `gnomon serve` with two workers."""
    command = [sys.executable, "-m", "gnomon", "serve", f"crawl={index}", "--port", "0", "--workers", "2"]
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=-1, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    prometheus = program("prometheus")
    folder, (token, kept) = tmp_path_factory.mktemp("monitored"), new_token("all")
    services = {"GnomonDown": free_port()}
    with ExitStack() as stack:
        for name in (WELL, *BROKEN):
            settings = replace(
                make_crawl(folder / name),
                tokens_file=str(folder / name / "tokens"),
                refresh_seconds=0.2,
                coverage_seconds=0.5,
            )
            (folder / name / "tokens").write_text(f"{kept.line}\n")
            if name == WELL:
                names = ("tokens_file", "refresh_seconds", "coverage_seconds")
                variables = {f"GNOMON_{one.upper()}": str(getattr(settings, one)) for one in names}
                services[name] = stack.enter_context(served(settings.indexes[0], variables))
            else:
                if name in AT_START:
                    broken(name, folder / name)
                services[name] = stack.enter_context(live(settings)).port
                if name not in AT_START:
                    broken(name, folder / name)
        port, config = free_port(), configuration(folder, services, token)
        command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        found = Monitored(port, services, token)
        stack.enter_context(
            server([*command, f"--web.listen-address=127.0.0.1:{port}"], folder / "log", lambda: ready(port), SECONDS)
        )
        yield found


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.process
def test_each_query_of_the_dashboard_has_an_answer(monitored: Monitored) -> None:
    values = {"$__rate_interval": "20s", "$instance": WELL, "$index": ".*"}
    open_queries = list(dict.fromkeys(QUERIES))
    end = time.monotonic() + SECONDS
    while open_queries and time.monotonic() < end:
        monitored.work()
        filled = [re.sub(r"\$\w+", lambda found: values[found[0]], one) for one in open_queries]
        open_queries = [one for one, query in zip(open_queries, filled, strict=True) if not monitored.query(query)]
        time.sleep(0.5)
    assert not open_queries


@pytest.mark.process
def test_alerts_of_broken_services_fire_each_for_its_cause_alone(monitored: Monitored) -> None:
    expected = {(name, name) for name in ("GnomonDown", *BROKEN)}
    end = time.monotonic() + SECONDS
    while not monitored.firing() >= expected and time.monotonic() < end:
        monitored.work()
        time.sleep(0.5)
    time.sleep(6)  # the time of a rule: another one whose cause is there would fire now
    assert monitored.firing() == expected


def test_the_dashboard_can_be_imported() -> None:
    """The parts that Grafana needs: a data source to choose, an id for each panel, panels that do not overlap."""
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "index"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    everywhere = [*PANELS, variables["instance"], variables["index"], *(t for p in PANELS for t in p["targets"])]
    assert all(one["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for one in everywhere)
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD, "an import makes a new dashboard"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        assert all(target["legendFormat"] for target in panel["targets"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells


def test_the_dashboard_shows_each_metric_of_the_service_and_asks_by_the_variables(tmp_path: Path) -> None:
    text = Client(make_crawl(tmp_path)).get("/metrics").text
    known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE gnomon_")}
    named = {name for query in QUERIES for name in re.findall(r"\b[a-z]+_[a-z_]+(?=\{)", query)}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in named if name.startswith("gnomon_")} == known
    for query in QUERIES:
        for selectors in re.findall(r"\{(.*?)\}", query):
            assert selectors.startswith('instance=~"$instance"')
