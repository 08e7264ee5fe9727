"""The service behind a real nginx with a path prefix, in the forms in which people write `proxy_pass`."""

import http.client
import json
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnomon.service.settings.table import Settings
from tests.service.lake import crawl_table
from tests.service.live import SECONDS, live
from tests.shadow.make_index import index_source, write_source
from tests.stores.process import answers, free_port, server

pytestmark = pytest.mark.process

REQUIRED = "GNOMON_TEST_NGINX"
HOST = "https://a.example"
URLS = [
    *(f"{HOST}{path}" for path in ("", "/", "//", "/a/b", "/a//b", "/a///b", "/a/b/", "/a/b//", "/?x=1&y=2", "/#part")),
    *(f"{HOST}/?u=https://b.example/{path}" for path in ("", "a//b", "?v=1", "%2F")),
    *(f"{HOST}/{text}" for text in ("a%2Fb", "a%252Fb", "a b", "a+b", "ä", "日本", "100%", "a;b=c", "a:b@c", "a,b")),
    *(f"{HOST}/{text}" for text in ("'q'", '"q"', "<t>", "{t}", "a|b", "a\\b", "^", "$", "*", "!")),
    *("https://u:p@a.example/", "https://a.example:8443/", "https://[::1]/", "s3://bucket/a//b", "file:///etc/hosts"),
    "urn://x//y//",
]
KEPT = "the prefix is kept"
MERGED = {  # nginx decodes the path, merges its slashes, and encodes it again
    "a path in proxy_pass": "proxy_pass http://service/;",
    "rewrite": "rewrite ^/gnomon/(.*)$ /$1 break; proxy_pass http://service;",
}
FORMS = {KEPT: "proxy_pass http://service;", **MERGED}


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The port of each form."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        why = "no nginx on the PATH; deploy/setup.sh --nginx installs it"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{why} ({REQUIRED}=required)")
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("nginx")
    write_source(folder / "lake", {"p.parquet": crawl_table([*URLS, "a//b", "c//"])})
    index_source(folder / "lake", folder / "shadow", ["url"])
    ports = {name: free_port() for name in FORMS}
    with live(Settings(indexes=[str(folder / "shadow")], root_path="/gnomon")) as running:
        (folder / "nginx.conf").write_text(_configuration(folder, running.port, ports))
        command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        with server(command, folder / "log", lambda: all(map(answers, ports.values())), SECONDS):
            yield ports


def _configuration(folder: Path, port: int, ports: dict[str, int]) -> str:
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{name}_temp_path {folder}/{name};\n" for name in names)
    servers = "".join(
        f"server {{ listen 127.0.0.1:{ports[name]}; location /gnomon/ {{ {form} }} }}\n" for name, form in FORMS.items()
    )
    return (
        f"daemon off;\npid {folder}/pid;\nworker_processes 1;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}upstream service {{ server 127.0.0.1:{port}; }}\n{servers}}}\n"
    )


def ask(port: int, method: str, target: str, body: object = None) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request(method, target, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def encoded(key: str) -> str:
    return urllib.parse.quote(key, safe="")


@pytest.mark.parametrize("form", FORMS)
def test_every_url_is_found_by_query_and_by_post(nginx: dict[str, int], form: str) -> None:
    for url in URLS:
        status, found = ask(nginx[form], "GET", f"/gnomon/rows?url={encoded(url)}")
        assert (status, [row["url"] for row in found["rows"]]) == (200, [url])
    status, found = ask(nginx[form], "POST", "/gnomon/rows", {"keys": URLS})
    assert status == 200
    assert [[row["url"] for row in one["rows"]] for one in found["results"]] == [[url] for url in URLS]


@pytest.mark.parametrize("safe", ["", "/:"])
def test_every_url_is_found_by_path_where_nginx_keeps_the_prefix(nginx: dict[str, int], safe: str) -> None:
    for url in URLS:
        target = f"/gnomon/rows/{urllib.parse.quote(url, safe=safe)}"
        status, found = ask(nginx[KEPT], "GET", target)
        assert (status, [row["url"] for row in found["rows"]]) == (200, [url])
        assert ask(nginx[KEPT], "HEAD", target)[0] == 200


@pytest.mark.parametrize("form", MERGED)
def test_a_key_whose_slashes_nginx_merged_is_404_with_the_way_to_ask(nginx: dict[str, int], form: str) -> None:
    """Also keys with two slashes elsewhere than behind a scheme."""
    for key in (*URLS, "a//b", "c//"):
        status, problem = ask(nginx[form], "GET", f"/gnomon/rows/{encoded(key)}")
        assert status == 404
        assert "a proxy has merged them; ask in the query, like /rows?url=VALUE" in problem["detail"]
        assert problem["key"] != {"url": key}


@pytest.mark.parametrize("form", FORMS)
def test_other_routes_are_answered_under_the_prefix(nginx: dict[str, int], form: str) -> None:
    status, index = ask(nginx[form], "GET", "/gnomon/indexes/shadow")
    assert (status, index["name"]) == (200, "shadow")
    assert ask(nginx[form], "GET", "/gnomon/readyz")[0] == 200
    status, problem = ask(nginx[form], "GET", "/gnomon/nowhere")
    assert (status, problem["title"]) == (404, "No such route")
