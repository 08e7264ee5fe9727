"""deploy/README.md and the files next to it: every command, setting, route, metric, file and alert in them exists, and
a rollback works as written."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gnomon.service.settings.sources import DEFAULT_PREFIX, PREFIX
from gnomon.service.settings.table import FIELDS
from tests.deploy.deployed import (
    DEPLOY,
    blocks,
    check_options,
    container_commands,
    gnomon_commands,
    manifests,
    parse_command,
    settings_of,
    spans,
)
from tests.opened import open_index
from tests.service.lake import Client, make_crawl
from tests.shadow.make_index import index_source, write_source

PAGE = (DEPLOY / "README.md").read_text()
TEXTS = {path: path.read_text() for path in sorted(DEPLOY.rglob("*")) if path.is_file() and path.suffix != ".sh"}
RULES = DEPLOY / "prometheus-alerts.yml"
# Other words with an underscore: of Python, and of a problem.
OTHERS = {"open_index", "request_id"}
CONFIG = PREFIX + "CONFIG"
SUFFIXES = ("_bucket", "_count", "_sum")


def anchors(page: str) -> list[str]:
    """Of the headings of a page, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads]


def exposed(folder: Path) -> set[str]:
    """The names of all metrics of the service: what it says before anybody asked for a row."""
    text = Client(make_crawl(folder)).get("/metrics").text
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def alerts() -> dict[str, dict[str, str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


@pytest.mark.parametrize("words", [*gnomon_commands(blocks(PAGE)), *container_commands()], ids=" ".join)
def test_a_command_that_is_typed_or_run_is_one_that_gnomon_takes(words: list[str]) -> None:
    parse_command(words)


def test_a_command_within_a_sentence_has_its_options() -> None:
    found = list(gnomon_commands(spans(PAGE)))
    assert len(found) > 5
    for words in found:
        check_options(words)


def test_variables_of_the_environment_are_settings() -> None:
    names = [name.upper() for name in FIELDS]
    known = {prefix + name for prefix in (PREFIX, DEFAULT_PREFIX) for name in names} | {CONFIG}
    for path, text in TEXTS.items():
        assert set(re.findall(rf"\b{PREFIX}[A-Z_]+\b", text)) <= known, path


def test_words_with_an_underscore_are_settings_or_metrics(tmp_path: Path) -> None:
    words = {span for span in spans(PAGE) if re.fullmatch(r"[a-z]+(_[a-z]+)+", span)}
    assert "cache_bytes" in words
    assert words - set(FIELDS) - OTHERS <= exposed(tmp_path)


def test_metrics_that_are_named_are_there(tmp_path: Path) -> None:
    known = exposed(tmp_path)
    named = {name for text in TEXTS.values() for name in re.findall(r"\bgnomon_[a-z_]+\b", text)} - {"gnomon_submit"}
    assert named
    for name in named:
        bases = {name, *(name.removesuffix(suffix) for suffix in SUFFIXES)}
        assert bases & known, name


def test_routes_that_are_named_are_there(tmp_path: Path) -> None:
    routes = {route.path for route in Client(make_crawl(tmp_path)).app.routes}  # type: ignore[attr-defined]
    named = {span.split()[-1] for span in spans(PAGE) if re.fullmatch(r"((GET|HEAD|POST) )?/[a-z.]+", span)}
    assert {"/healthz", "/readyz", "/rows"} <= named
    assert named <= routes


@pytest.mark.parametrize("toml", [DEPLOY / "gnomon.toml", "ConfigMap/gnomon"], ids=str)
def test_settings_are_ones_that_the_service_knows(toml: Path | str) -> None:
    text = toml.read_text() if isinstance(toml, Path) else manifests()[toml]["data"]["gnomon.toml"]
    settings_of(text)
    settings_of(re.sub(r'^# (?=[a-z_]+ = ["\d])', "", text, flags=re.MULTILINE))  # with those that are commented out


def test_links_lead_to_pages_and_headings_that_are_there() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", PAGE)
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        target = (DEPLOY / path).resolve() if path else DEPLOY / "README.md"
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_every_file_has_a_line_in_the_table() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {span.rstrip("/") for row in rows for span in row.split("|")[1].split("`")[1::2]}
    there = {path.name for path in DEPLOY.iterdir()} - {"README.md", "Containerfile.dockerignore", "__pycache__"}
    assert there <= named
    assert named - there <= {span.rstrip("/") for span in named if "<" in span or not (DEPLOY / span).exists()}


def test_each_alert_has_a_part_that_says_what_to_do() -> None:
    part = PAGE.partition("\n## Alerts\n")[2]
    heads = re.findall(r"^### (\w+)$", part, re.MULTILINE)
    assert sorted(heads) == sorted(alerts())
    for name, rule in alerts().items():
        own = part.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert "**Means**" in own, name
        assert "**Do**" in own, name
        link = rule["annotations"]["runbook_url"]  # type: ignore[index]
        assert link.endswith(f"deploy/README.md#{name.lower()}"), link


def test_the_snapshot_before_counts_again_after_a_rollback_and_its_number_is_used_again(tmp_path: Path) -> None:
    first = Client(make_crawl(tmp_path)).served.index  # snapshot 1
    write_source(tmp_path / "lake", {"dt=2026-01-03/p.parquet": _one_row(tmp_path)})
    assert index_source(tmp_path / "lake", tmp_path / "shadow", ["url"]).number == 2
    running = open_index(str(tmp_path / "shadow"))
    (tmp_path / "shadow" / "_shadow" / "snapshots" / f"{2:020}.json").rename(tmp_path / "kept.json")
    assert running.refresh()
    assert running.view.snapshot == first.view.snapshot
    (tmp_path / "lake" / "dt=2026-01-03" / "p.parquet").unlink()
    (tmp_path / "lake" / "dt=2026-01-02" / "p.parquet").unlink()
    assert index_source(tmp_path / "lake", tmp_path / "shadow", ["url"]).number == 2
    assert running.refresh()
    assert not running.fetch("second")
    assert len(running.fetch("twice")) == 2


def _one_row(folder: Path) -> pa.Table:
    return pq.read_table(folder / "lake" / "dt=2026-01-02" / "p.parquet").slice(0, 1)
