"""The site of the documentation (`docs/site`): it is complete, and shows a page as a code host does."""

import json
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import gnomon

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parent.parent
MAKE = ROOT / "docs/site/make.py"
FROM_CODE = {"reference/python-api.md", "reference/http-api.md"}
TAGS = {"h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "code", "em", "strong", "img", "a"}
OWN = {"headerlink", "md-content__button"}  # classes of links that the theme adds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. Its pages in Markdown lie beside it, in `site-pages/docs`."""
    site = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run([sys.executable, MAKE, site], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


def pages_of(site: Path) -> dict[str, Path]:
    folder = site.with_name("site-pages") / "docs"
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.md"))}


class Elements(HTMLParser):
    """The numbers of the elements of a page's text by their tag, the anchors, and the addresses that it loads."""

    def __init__(self, html: str, is_whole: bool) -> None:
        super().__init__()
        self.inside = not is_whole
        self.tags = Counter[str]()
        self.anchors = set[str]()
        self.loaded = list[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        address = given.get("src" if tag in {"script", "img", "iframe"} else "href" if tag == "link" else "", "")
        self.loaded += [address] if address and given.get("rel") != "canonical" else []
        self.inside |= tag == "article"
        if self.inside and tag in TAGS and not OWN & set((given.get("class") or "").split()):
            self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self.inside &= tag != "article"


def elements(site: Path, page: str) -> Elements:
    return Elements((site / page).with_suffix(".html").read_text(), is_whole=True)


def test_the_site_has_every_page_and_finds_it(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written <= set(pages_of(site))
    found = {
        one["location"].partition("#")[0] for one in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    assert found == {page.replace(".md", ".html") for page in pages_of(site)}


def test_the_first_page_is_the_first_screen_of_the_readme(site: Path) -> None:
    first = (ROOT / "README.md").read_text().partition("\n## ")[0]
    assert first in pages_of(site)["index.md"].read_text()


def test_a_link_shows_the_title_of_its_page(site: Path) -> None:
    assert "[Maintain an index](guide/maintain.md)" in pages_of(site)["index.md"].read_text()
    texts = {page: path.read_text() for page, path in pages_of(site).items()}
    assert {page: found for page, text in texts.items() if (found := re.findall(r"\[[\w./-]+\.md\]\(", text))} == {}


def test_a_page_has_the_lists_tables_and_code_that_a_code_host_shows(site: Path) -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    for page, path in pages_of(site).items():
        if page not in FROM_CODE:
            text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(), flags=re.DOTALL)
            assert elements(site, page).tags == Elements(markdown.render(text), is_whole=False).tags, page


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    loaded = {page: elements(site, page).loaded for page in pages_of(site)}
    assert all(loaded.values())
    assert [one for of_page in loaded.values() for one in of_page if re.match(r"(\w+:)?//", one)] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", styles) == []


def test_every_public_name_has_its_docstring_on_the_page(site: Path) -> None:
    page = elements(site, "reference/python-api.md")
    assert {anchor.rpartition(".")[2] for anchor in page.anchors if anchor.startswith("gnomon.")} >= set(gnomon.__all__)
    text = (site / "reference/python-api.html").read_text()
    assert all(first in text for first in ("An index at one snapshot, until", "The path holds no index."))


def test_every_route_of_the_openapi_document_is_on_the_page(site: Path) -> None:
    document = json.loads((site / "reference/openapi.json").read_text())
    text = pages_of(site)["reference/http-api.md"].read_text()
    operations = [(m.upper(), path) for path, of in document["paths"].items() for m in of if m != "head"]
    assert len(operations) == 10
    assert [
        one for one in operations if not re.search(rf"(?:^## |`){one[0]} {re.escape(one[1])}(?:`|$)", text, re.M)
    ] == []
    anchors = elements(site, "reference/http-api.md").anchors
    assert {shape.lower() for shape in document["components"]["schemas"]} <= anchors


@pytest.mark.parametrize("wrong", ["[a](none.md)", "[a](index.md#none)", "[a](/none.html)", "::: gnomon.none"])
def test_a_warning_fails_the_build(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/site.css").touch()
    (tmp_path / "docs/index.md").write_text(f"# A page\n\n{wrong}\n")
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {MAKE.with_name('mkdocs.yml')}\nnav: [index.md]\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stderr
    assert "none" in done.stderr
