"""Files on the web are read as they were opened or not at all. Nothing is written there, and no secret leaves."""

import pickle
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from gnomon.shadow.errors import FileChanged, StorageError, Unreachable, UsageError
from gnomon.shadow.storage import FileInfo, Storage, storage_at
from gnomon.shadow.storage.contract import ANY_TIME, difference
from gnomon.shadow.storage.retries import Patience
from gnomon.shadow.storage.web import HubStorage, WebStorage
from tests.shadow.storage.contract import ReadingContract
from tests.stores.web import Asked, Hub, Reply, WebServer

QUICK = Patience(tries=3, first_wait=0.01, longest_wait=0.02, connect=1, read=5, request=5)
DATA_SET = "hf://datasets/owner/name"


def opened(storage: Storage, path: str) -> FileInfo:
    with storage.open(path) as file:
        return FileInfo(path, file.size, file.mtime_ns, file.etag)


class TestWeb(ReadingContract):
    @pytest.fixture
    def storage(self, web: WebServer) -> Storage:
        self.web = web
        return WebStorage(f"{web.address}/a%20folder", QUICK)

    def put(self, storage: Storage, path: str, data: bytes = b"x") -> None:
        self.web.put(f"/a folder/{path}", data)

    def remove(self, storage: Storage, path: str) -> None:
        self.web.remove(f"/a folder/{path}")

    def known(self, storage: Storage, path: str) -> FileInfo:
        return opened(storage, path)


class TestWebWithTimesOnly(TestWeb):
    @pytest.fixture
    def storage(self, web: WebServer) -> Storage:
        self.web = web
        web.etag = lambda _: ""
        return WebStorage(f"{web.address}/a%20folder", QUICK)


class TestWebWithWeakEtags(TestWeb):
    """The weak etag stays as the file changes."""

    @pytest.fixture
    def storage(self, web: WebServer) -> Storage:
        self.web = web
        web.etag = lambda _: 'W/"same"'
        return WebStorage(f"{web.address}/a%20folder", QUICK)


class TestWebThroughRedirects(TestWeb):
    @pytest.fixture
    def storage(self, web: WebServer) -> Iterator[Storage]:
        self.web = web
        with WebServer() as front:
            front.fault = lambda asked: Reply(302, {"Location": f"{web.address}{asked.target}?X-Signature=SECRET"})
            yield WebStorage(f"{front.address}/a%20folder", QUICK)


class TestHub(ReadingContract):
    @pytest.fixture
    def storage(self, hub: Hub) -> Storage:
        self.hub = hub
        hub.commit({})
        return HubStorage(DATA_SET, QUICK)

    @property
    def files(self) -> dict[str, bytes]:
        return self.hub.commits[self.hub.branches["main"]]

    def put(self, storage: Storage, path: str, data: bytes = b"x") -> None:
        self.hub.commit({**self.files, path: data})

    def remove(self, storage: Storage, path: str) -> None:
        self.hub.commit({name: data for name, data in self.files.items() if name != path})

    def known(self, storage: Storage, path: str) -> FileInfo:
        return opened(storage, path)

    def test_a_file_on_record_is_opened_and_another_one_is_not(self, storage: Storage) -> None:
        """The hub keeps the recorded state, which is read after the file changed or went."""
        self.put(storage, "p/f", b"old")
        known = self.known(storage, "p/f")
        with pytest.raises(FileChanged, match=r"p/f: the file changed \(then 4 bytes, now 3\)"):
            storage.open("p/f", known=known._replace(size=4, etag="", mtime_ns=ANY_TIME))
        self.rewrite(storage, "p/f", b"new")
        for _ in range(2):
            with storage.open("p/f", known=known) as file:
                assert file.read_range(0, 3) == b"old"
            self.remove(storage, "p/f")
            self.put(storage, "other")

    def test_a_file_on_record_that_is_shorter_by_now_is_another_one(self, storage: Storage) -> None:
        self.put(storage, "f", b"0123456789")
        known = self.known(storage, "f")
        self.put(storage, "f", b"0123")
        with storage.open("f", known=known) as file:
            assert file.read_range(8, 2) == b"89"
        with pytest.raises(FileChanged), storage.open("f", known=known._replace(etag="", mtime_ns=ANY_TIME)) as file:
            file.read_range(8, 2)


class TestHubWithLargeFiles(TestHub):
    """The bytes come from another server, with an etag of its own."""

    @pytest.fixture
    def storage(self, hub: Hub) -> Storage:
        self.hub = hub
        hub.is_large = lambda _: True
        hub.commit({})
        return HubStorage(DATA_SET, QUICK)


def refusal(call: Callable[[], object]) -> str:
    """The text of the error of a call."""
    with pytest.raises((StorageError, UsageError)) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- web servers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("a%20b.parquet", "a b.parquet"),
        ("a b.parquet", "a b.parquet"),
        ("%E6%97%A5%25+=", "日%+="),
        ("p%3D1;x", "p=1;x"),
    ],
)
def test_a_url_is_percent_encoded_and_recorded_as_it_is(web: WebServer, url: str, path: str) -> None:
    web.put(f"/{path}", b"data")
    storage = storage_at(web.address)
    with storage.open(url) as file:
        assert (file.read_range(1, 2), file.name) == (b"at", f"{web.address}/{url}")
    assert {asked.path for asked in web.asked} == {f"/{path}"}


@pytest.mark.parametrize("url", ["a%2Fb", "%FF"])
def test_a_url_that_no_path_can_hold_is_refused(web: WebServer, url: str) -> None:
    assert "a name in the URL has an encoded slash" in refusal(lambda: storage_at(web.address).open(url))
    assert not web.asked


def test_a_server_that_ignores_ranges_is_refused(web: WebServer) -> None:
    web.put("/f", b"data" * 1000)
    known = opened(storage_at(web.address), "f")
    web.has_ranges = False
    for call in (lambda: storage_at(web.address).open("f"), lambda: read(storage_at(web.address), known)):
        text = refusal(call)
        assert text.startswith(f"{web.address}/f: the server does not answer with a part of the file (Range)")
        assert text.endswith("copy the file to a disk or an object store, and index the copy")


def read(storage: Storage, known: FileInfo) -> bytes:
    with storage.open(known.path, known=known) as file:
        return file.read_range(0, known.size)


def test_a_server_that_says_nothing_of_the_state_of_a_file_is_refused(web: WebServer) -> None:
    web.put("/f", b"data")
    known = opened(storage_at(web.address), "f")
    web.etag, web.has_times = (lambda _: ""), False
    for call in (lambda: storage_at(web.address).open("f"), lambda: read(storage_at(web.address), known)):
        assert "f: the server's answer has neither ETag nor Last-Modified" in refusal(call)


@pytest.mark.parametrize(("status", "requests"), [(400, 1), (401, 1), (403, 1), (410, 1), (429, 3), (500, 3), (503, 3)])
def test_a_refusal_is_one_line_and_only_what_may_pass_is_asked_again(
    web: WebServer, status: int, requests: int
) -> None:
    web.fault = lambda asked: (
        Reply(302, {"Location": "/b?X-Signature=SECRET"}) if asked.path == "/a" else Reply(status, {}, b"<html>SECRET")
    )
    text = refusal(lambda: WebStorage(web.address, QUICK).open("a"))
    assert text.startswith(f"{web.address}/a: the store ")
    assert "X-Signature" not in text
    assert len(web.asked) == 2 * requests


def test_a_busy_server_is_asked_again(web: WebServer) -> None:
    web.put("/f", b"data")
    answers = iter([Reply(503), Reply(429, {"Retry-After": "1"}), None, Reply(500)])
    web.fault = lambda _: next(answers, None)
    storage = WebStorage(web.address, QUICK)
    assert storage.read("f") == b"data"


def test_a_folder_is_refused_before_any_request(web: WebServer) -> None:
    text = refusal(lambda: storage_at(f"{web.address}/folder/"))
    assert "the URL of a folder, and a web server lists no files; expected the URL of one file" in text
    assert "name one file by its URL" in refusal(lambda: list(storage_at(f"{web.address}/folder").list()))
    assert not web.asked


@pytest.mark.parametrize("root", ["http://127.0.0.1:1/x", DATA_SET])
def test_nothing_is_written(root: str) -> None:
    storage = storage_at(root)
    calls: list[Callable[[], object]] = [
        lambda: storage.put_new("f", [b"x"]),
        lambda: storage.move_new("f", "g"),
        lambda: storage.delete("f"),
        lambda: storage.delete_folder("f"),
        lambda: storage.delete_empty("f"),
    ]
    for call in calls:
        assert refusal(call).startswith(f"{root}: files there are only read")


@pytest.mark.parametrize(
    "url",
    [
        "https://me:SECRET@host/f",
        "https://SECRET@host/f",
        "https://host/f?token=SECRET",
        "https://host/f#SECRET",
        "https://me:SECRET@host//f",
        "https://host/f//g?token=SECRET",
        "https://me:SECRET@host/f/",
        "https://host/f?token=SECRET/",
        "ftp://me:SECRET@host/f",
    ],
)
def test_a_url_with_a_secret_is_refused_and_the_secret_not_shown(url: str) -> None:
    text = refusal(lambda: storage_at(url))
    assert "SECRET" not in text
    assert "://host/f" in text or "://host//f" in text


def test_plain_http_is_for_this_machine_alone() -> None:
    assert "http:// is for servers of this machine" in refusal(lambda: storage_at("http://host/f"))
    for host in ("localhost:1", "[::1]:1"):
        assert storage_at(f"http://{host}/f").root == f"http://{host}/f"


def test_https_is_read_from_a_trusted_server_which_cannot_redirect_to_http(
    web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    with WebServer(tls) as server:
        server.put("/f", b"data")
        assert "the certificate of the store is not trusted" in refusal(lambda: WebStorage(server.address).open("f"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert WebStorage(server.address).read("f") == b"data"
        web.put("/f", b"plain")
        server.fault = lambda _: Reply(302, {"Location": f"{web.address}/f"})
        refusal(lambda: WebStorage(server.address, QUICK).read("f"))
        assert not web.asked


@pytest.mark.parametrize("state", ["used before", "not used before"])
def test_a_pickled_storage_is_the_same_place(web: WebServer, hub: Hub, state: str) -> None:
    web.put("/p/f", b"data")
    hub.commit({"p/f": b"data"}, branch="a/b")
    for storage in (WebStorage(f"{web.address}/p"), HubStorage(f"{DATA_SET}@a%2Fb/p")):
        if state == "used before":
            storage.read("f")
        again = pickle.loads(pickle.dumps(storage))
        assert (again.root, again.read("f")) == (storage.root, b"data")


# -- hubs --------------------------------------------------------------------------------------------------------------


def listed(place: str = DATA_SET) -> list[str]:
    return [info.path for info in HubStorage(place, QUICK).list()]


FILES = {
    "README.md": b"read me",
    ".gitattributes": b"*",
    "data/a.parquet": b"a" * 10,
    "data/b.parquet": b"b" * 20,
    "data/deep/c.parquet": b"c" * 30,
    "data/_hidden.parquet": b"d",
    "database/e.parquet": b"e" * 50,
    "script.py": b"pass",
}


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_a_data_set_lists_its_parquet_files_from_all_pages(hub: Hub, page: int) -> None:
    hub.commit(FILES)
    hub.page = page
    assert listed() == ["data/a.parquet", "data/b.parquet", "data/deep/c.parquet", "database/e.parquet"]
    assert listed(f"{DATA_SET}/data") == ["a.parquet", "b.parquet", "deep/c.parquet"]
    assert listed(f"{DATA_SET}/nowhere") == []
    for info in HubStorage(f"{DATA_SET}/data", QUICK).list():
        assert (info.size, difference(info, opened(storage_at(f"{DATA_SET}/data"), info.path))) == (
            len(FILES[f"data/{info.path}"]),
            "",
        )


@pytest.mark.parametrize("is_large", [True, False])
def test_names_in_a_data_set_may_hold_any_character(hub: Hub, is_large: bool) -> None:
    paths = [
        "p=a%2Fb/x y.parquet",
        "p=ü/日本.parquet",
        "p/#;&+'?.parquet",
        "p/100%.parquet",
        "p=a:b/~!$(),@`<>.parquet",
    ]
    if not is_large:  # the client does not follow a redirect from such a URL
        paths.append("p/[x]^|.parquet")
    hub.is_large = lambda _: is_large
    hub.commit({path: path.encode() for path in paths})
    storage = HubStorage(DATA_SET, QUICK)
    assert {info.path: read(storage, info).decode() for info in storage.list()} == {path: path for path in paths}
    assert [storage_at(f"{DATA_SET}/{path}").root for path in paths] == [f"{DATA_SET}/{path}" for path in paths]
    assert all(opened(storage, path).size == len(path.encode()) for path in paths)


def test_a_page_that_is_lost_is_noticed(hub: Hub) -> None:
    hub.commit(FILES)
    hub.page = 2

    def without_next(asked: Asked) -> Reply:
        found = hub.reply(asked)
        found.headers.pop("Link", None)
        return found

    hub.fault = without_next
    assert "the hub's listing lacks data/_hidden.parquet, which is there" in refusal(listed)


def test_a_page_that_comes_twice_is_noticed(hub: Hub) -> None:
    hub.commit(FILES)
    hub.page = 2
    hub.fault = lambda asked: hub.reply(Asked(asked.method, asked.target.partition("&cursor=")[0], asked.headers))
    assert "a page of the hub's listing has no new names" in refusal(listed)


def test_a_listing_of_empty_pages_ends(hub: Hub) -> None:
    hub.commit(FILES)
    more = Reply(200, {"Link": '<http://x/y?cursor=1>; rel="next"'}, b"[]")
    hub.fault = lambda asked: more if "/tree/" in asked.path else None
    assert "a page of the hub's listing has no new names" in refusal(listed)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[",
        b"<html>Please sign in</html>",
        b"null",
        b"[1]",
        b'[{"type": "file", "path": "a.parquet"}]',
        b'[{"type": "file", "path": "a.parquet", "lfs": [1]}]',
        b'{"sha": "main"}',
        b'{"sha": "0123456789012345678901234567890123456789", "siblings": [1]}',
    ],
)
def test_another_document_is_no_listing(hub: Hub, body: bytes) -> None:
    hub.commit(FILES)
    for part in ("/tree/", "/revision/"):
        hub.fault = lambda asked, part=part: Reply(200, {}, body) if part in asked.path else None  # type: ignore[misc]
        with pytest.raises(Unreachable, match="the hub answers with another document"):
            listed()


@pytest.mark.parametrize(("status", "requests"), [(400, 1), (401, 1), (403, 1), (429, 3), (500, 3), (503, 3)])
def test_a_refusal_of_the_hub_is_one_line_and_only_what_may_pass_is_asked_again(
    hub: Hub, status: int, requests: int
) -> None:
    hub.commit(FILES)
    hub.fault = lambda _: Reply(status, {}, b"SECRET")
    assert refusal(listed).startswith(f"{DATA_SET}: the hub ")
    assert len(hub.asked) == requests
    refusal(lambda: HubStorage(DATA_SET, QUICK).open("data/a.parquet"))


def test_a_busy_hub_is_asked_again(hub: Hub) -> None:
    hub.commit(FILES)
    answers = iter([Reply(503), None, Reply(429), None])
    hub.fault = lambda _: next(answers, None)
    assert len(listed()) == 4


@pytest.mark.parametrize("place", ["hf://datasets/owner/other", f"{DATA_SET}@nowhere"])
def test_a_data_set_that_is_not_there_is_an_error_and_not_empty(hub: Hub, place: str) -> None:
    hub.commit(FILES)
    assert "the hub has no such data set, or no revision" in refusal(lambda: listed(place))


@pytest.mark.parametrize("place", ["hf://models/owner/name", "hf://owner/name", "hf://datasets"])
def test_another_address_than_that_of_a_data_set_is_refused(place: str) -> None:
    assert "hf://datasets/OWNER/NAME" in refusal(lambda: storage_at(place).open("x/y"))


@pytest.mark.parametrize("named", ["refs/convert/parquet", "refs%2Fconvert%2Fparquet", "~parquet"])
def test_a_revision_may_be_that_of_converted_files(hub: Hub, named: str) -> None:
    hub.commit({"data.csv": b"x"})
    hub.commit({"default/train/0.parquet": b"converted"}, branch="refs/convert/parquet")
    storage = storage_at(f"{DATA_SET}@{named}/default/")
    assert storage.root == f"{DATA_SET}@refs%2Fconvert%2Fparquet/default"
    assert [info.path for info in storage.list()] == ["train/0.parquet"]
    assert storage.read("train/0.parquet") == b"converted"


def test_the_metadata_of_lake_tables_is_listed_so_that_they_are_known(hub: Hub) -> None:
    hub.commit(
        {"a.parquet": b"x", "metadata/v1.metadata.json": b"x", "_delta_log/0.json": b"x", "metadata/x.json": b"x"}
    )
    storage = HubStorage(DATA_SET, QUICK)
    assert [i.path for i in storage.list(hidden=frozenset({"_delta_log"}))] == [
        "_delta_log/0.json",
        "a.parquet",
        "metadata/v1.metadata.json",
    ]


def test_the_token_goes_to_the_hub_alone(hub: Hub, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "TOKEN"
    hub.page = 2
    hub.commit(FILES)
    assert "set HF_TOKEN to a token that may read it" in refusal(listed)
    monkeypatch.setenv("HF_TOKEN", "TOKEN\n")
    storage = HubStorage(DATA_SET, QUICK)
    for info in storage.list():
        assert len(read(storage, info)) == info.size
    assert web.asked
    assert not any("authorization" in asked.headers for asked in web.asked)
    assert b"TOKEN" not in pickle.dumps(storage)


def test_a_listing_is_of_the_hub_alone(hub: Hub, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "TOKEN")
    hub.commit(FILES)
    hub.page = 2
    web.put("/other", b"[]")

    def linked(asked: Asked) -> Reply:
        """The next page, as a mirror of a hub names it."""
        found = hub.reply(asked)
        found.headers = {name: text.replace(hub.address, web.address) for name, text in found.headers.items()}
        return found

    hub.fault = linked
    assert len(listed()) == 4
    assert not web.asked
    hub.fault = lambda asked: Reply(302, {"Location": f"{web.address}/other"}) if "/tree/" in asked.path else None
    with pytest.raises(Unreachable, match="the hub answers with another document"):
        listed()
    assert web.asked
    assert not any("authorization" in asked.headers for asked in web.asked)


@pytest.mark.parametrize("address", ["http://host", "https://me:SECRET@host", "host", "ftp://host"])
def test_an_address_of_the_hub_that_shows_secrets_or_is_none_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    hub.commit(FILES)
    [first, *_] = HubStorage(DATA_SET, QUICK).list()
    monkeypatch.setenv("HF_ENDPOINT", address)
    for call in (listed, lambda: read(HubStorage(DATA_SET, QUICK), first)):
        text = refusal(call)
        assert "HF_ENDPOINT: expected http" in text
        assert "SECRET" not in text


def test_a_token_that_is_none_is_refused_and_not_shown(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "SECRET\nX: y")
    text = refusal(listed)
    assert "HF_TOKEN has characters that no token has" in text
    assert "SECRET" not in text


def test_a_commit_that_a_rewrite_of_the_history_removed_is_read_elsewhere_if_the_content_is_the_same(hub: Hub) -> None:
    storage = HubStorage(DATA_SET, QUICK)
    first = hub.commit({"a.parquet": b"same", "b.parquet": b"old"})
    same, other = storage.list()
    hub.commit({"a.parquet": b"same", "b.parquet": b"new"})
    del hub.commits[first]
    for path in ("a.parquet", "b.parquet"):
        hub.files.remove(f"/{first}/{path}")
    assert read(storage, same) == b"same"
    with pytest.raises(FileChanged, match=r"b\.parquet: the file changed \(its etag differs\)"):
        read(storage, other)
    hub.commit({"b.parquet": b"new"})
    assert read(storage, opened(storage, "b.parquet")) == b"new"
    with pytest.raises(FileNotFoundError):
        read(storage, same)
