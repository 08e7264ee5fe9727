"""service/api/pages.py: the files of the page. `page/` tests them in a browser."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from gnomon.service.api import pages
from tests.service.lake import Client

FOLDER = Path(pages.__file__).parent.parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_sent_as_what_it_is_and_asked_for_anew_each_time(crawl: Client, name: str) -> None:
    answer = crawl.get(f"/page/{name}")
    assert (answer.status_code, answer.content) == (200, (FOLDER / name).read_bytes())
    assert answer.headers["content-type"].split(";")[0] == TYPES[Path(name).suffix]
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("path", "name"), [("/", "index.html"), ("/docs", "docs.html")])
def test_the_pages_stand_at_their_paths(crawl: Client, path: str, name: str) -> None:
    assert crawl.get(path).content == (FOLDER / name).read_bytes()
    head = crawl.ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")


def test_a_file_that_is_known_is_not_sent_again(crawl: Client) -> None:
    known = crawl.get("/page/app.js").headers["etag"]
    for given in (known, f"W/{known}", f'"other", {known}', "*"):
        answer = _asked(crawl, given)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known)
    assert _asked(crawl, '"other"').status_code == 200
    assert crawl.get("/page/dom.js").headers["etag"] != known


def _asked(client: Client, known: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(client.app), base_url="http://gnomon") as http:
            return await http.get("/page/app.js", headers={"if-none-match": known})

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "target", ["/page/", "/page/none.js", "/page/..%2Fpages.py", "/page/%2e%2e%2fpages.py", "/page/x/app.js"]
)
def test_no_other_file_can_be_had(crawl: Client, target: str) -> None:
    assert crawl.get(target).status_code == 404


def test_scripts_styles_and_requests_are_the_services_own(crawl: Client) -> None:
    for path in ("/", "/docs"):
        policy = crawl.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".svg")])
def test_a_file_names_no_other_host_and_only_files_that_are_there(name: str) -> None:
    text = (FOLDER / name).read_text()
    hosts = set(re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}", text)) - {"http://www.w3"}
    assert not hosts
    named = re.findall(r'(?:from "\./|"page/)([\w.-]+)"', text)
    assert set(named) <= set(FILES)


def test_the_browser_is_told_of_all_modules_at_once() -> None:
    for page, script in (("index.html", "app.js"), ("docs.html", "docs.js")):
        text = (FOLDER / page).read_text()
        assert _imported(script) - {script} == set(re.findall(r'modulepreload" href="page/([\w.-]+)"', text))


def _imported(script: str) -> set[str]:
    found, todo = set[str](), [script]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += re.findall(r'from "\./([\w.-]+)"', (FOLDER / name).read_text())
    return found
