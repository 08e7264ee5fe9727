"""The pages in docs/ and next to the code: each link has a target, and each page can be found."""

import re
from pathlib import Path

import pytest

from gnomon.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """The places that a link may name: each heading in small letters, without signs, with dashes for blanks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        found = (page.parent / target).resolve() if target else page
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
