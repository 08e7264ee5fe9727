"""The pages in docs/ and next to the code: each link has a target, and each page can be found."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bench.page import RESULTS
from bench.report import PAGE, SECTIONS, page
from gnomon.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "SECURITY.md",
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


@pytest.mark.process
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/question.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_a_file_that_a_code_host_reads_has_its_form(schema: str, path: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(ROOT / path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_citation_is_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["authors"] == project["authors"]
    assert citation["keywords"] == project["keywords"]
    assert citation["license"] == project["license"]


def test_the_version_stands_in_one_place() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tops = ["btree", "deploy", "docs", "examples", "gnomon", "indexer", "service", ".github"]
    files = [
        *PAGES,
        ROOT / "CITATION.cff",
        *(path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()),
    ]
    texts = [path for path in files if path.suffix not in {".png", ".so", ".pyc", ".c", ".txt"}]
    ours = re.compile(rf"(?:gnomon|version|tag)\S*?[\"':=@ ]+v?{re.escape(version)}(?![.\d])", re.IGNORECASE)
    found = {path.relative_to(ROOT).as_posix() for path in texts if ours.search(path.read_text())}
    # the tags of the images, which tests/deploy/test_images.py compares
    assert found == {"deploy/kubernetes/cronjob.yaml", "deploy/kubernetes/deployment.yaml"}


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
