"""The pages in docs/ and next to the code: each link has a target, and each page can be found."""

import json
import re
from pathlib import Path

import pytest

from bench.page import RESULTS
from bench.report import PAGE, SECTIONS, page
from gnomon.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy" / "README.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """The places that a link may name: each heading in small letters, without signs, with dashes for blanks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), f"{target} is not there"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target} has no heading {anchor}"


def test_each_page_is_named_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    assert [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in named | {index}] == []


def test_each_file_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(
        r"`((?:base|btree|sources|shadow|indexer|service|gnomon|tests|docs|bench|deploy)/[\w/*.-]*)`", text
    )
    assert len(named) > 40
    assert [name for name in named if not list(ROOT.glob(name.removesuffix("/")))] == []


def test_the_page_of_the_command_line_lists_each_command() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert re.findall(r"^\| `gnomon ([a-z-]+)", text, re.MULTILINE) == list(COMMANDS)


def test_the_page_of_benchmarks_is_what_its_command_writes() -> None:
    assert PAGE.read_text() == page(), "run make bench-report"


def test_each_result_is_of_a_workload_and_is_on_the_page_of_benchmarks() -> None:
    files = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    assert {name: result["workload"] for name, result in files.items()} == {name: name for name in files}
    assert [name for name in files if not (ROOT / "bench" / f"{name}.py").exists()] == []
    assert sorted(files) == sorted(section.workload for section in SECTIONS)
    for result in files.values():
        for table in (table for run in result["runs"] for table in run["tables"]):
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}, table["title"]
