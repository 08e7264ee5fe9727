"""HDFS keeps the contract of a store; tests for HDFS only."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError, Unreachable
from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.storage.contract import difference
from gnomon.shadow.storage.retries import Passing, Patience
from gnomon.shadow.storage.webhdfs import WebHdfsStorage
from gnomon.shadow.storage.webhdfs_calls import Answer, WebHdfs
from tests.shadow.storage.contract import SharedStorageContract
from tests.stores import lying
from tests.stores.lying import LyingProxy, Request
from tests.stores.process import HttpServer, Store

DEAD, EMPTY = "127.0.0.9", "empty"  # nothing listens at this address; a file of no living datanode


class TestHdfs(SharedStorageContract):
    many = 300  # this namenode lists a hundred of a folder at a time
    refused = ("p=a:b/12:30:00",)

    @pytest.fixture
    def storage(self, hdfs_root: str) -> Storage:
        return storage_at(hdfs_root)


def lose_replies(monkeypatch: pytest.MonkeyPatch, operation: str, times: int) -> None:
    """Let calls of an operation succeed, and lose their replies."""
    send, left = WebHdfs._send, [None] * times

    def losing(self: WebHdfs, method: str, place: str, url: str, body: bytes | None = None) -> Answer:
        answer = send(self, method, place, url, body)
        if f"op={operation}" in url and left:
            left.pop()
            raise Passing("hdfs://x: does not answer: timed out")
        return answer

    monkeypatch.setattr(WebHdfs, "_send", losing)


@pytest.mark.parametrize("operation", ["CREATE", "RENAME", "GETFILESTATUS", "DELETE", "MKDIRS"])
def test_lost_replies_are_settled(hdfs_root: str, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    storage = storage_at(hdfs_root)
    storage.put_new("taken", [b"theirs"])
    lose_replies(monkeypatch, operation, 2)
    storage.put_new("f", [b"data"])
    storage.move_new("f", "p/g")
    assert storage.read("p/g") == b"data"
    with pytest.raises(AlreadyExists):
        storage.put_new("taken", [b"ours"])
    assert storage.read("taken") == b"theirs"
    storage.delete("p/g")
    assert [info.path for info in storage.list(hidden=True)] == ["taken"]


def test_a_put_is_not_moved_into_a_folder_of_its_name(hdfs_root: str) -> None:
    storage = storage_at(hdfs_root)
    storage.put_new("name/below", [b"x"])
    with pytest.raises(AlreadyExists, match="name: the name is taken, by a folder"):
        storage.put_new("name", [b"y"])
    assert [info.path for info in storage.list(hidden=True)] == ["name/below"]


def test_a_file_that_was_cut_and_appended_to_is_another_one(hdfs_root: str) -> None:
    """Its number and its size are the same."""
    storage = storage_at(hdfs_root)
    storage.put_new("f", [b"0123456789"])
    [known] = storage.list()
    place, hdfs = hdfs_root.removeprefix("hdfs://").partition("/")[2], WebHdfs.of(hdfs_root, Patience())
    assert hdfs.json("POST", "TRUNCATE", f"/{place}/f", newlength="4") == {"boolean": False}
    _append(hdfs, f"/{place}/f", b"abcdef")
    [now] = storage.list()
    assert (now.size, now.etag.partition("-")[0]) == (known.size, known.etag.partition("-")[0])
    assert difference(known, now)
    with storage.open("f", known=known) as file, pytest.raises(FileChanged):
        file.read_range(0, 4)


def _append(hdfs: WebHdfs, place: str, data: bytes) -> None:
    """Append when the datanode has recovered the cut block, which takes a while."""
    for _ in range(100):
        answer = hdfs._ask("POST", "APPEND", place, {})
        if answer.location:
            answer = hdfs._send("POST", place, answer.location, data)
        if answer.status == 200:
            return
        time.sleep(0.2)
    raise AssertionError(answer.body)


def test_an_address_is_shown_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_WEBHDFS", "ftp://admin:secret@namenode")
    with pytest.raises(StorageError, match="found 'ftp://namenode'"):
        storage_at("hdfs://lake/x")


def test_a_namenode_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_WEBHDFS", "http://127.0.0.1:1")
    storage = WebHdfsStorage("hdfs://lake/x", Patience(tries=2, first_wait=0.01))
    with pytest.raises(StorageError, match=r"^hdfs://lake/x/f: 127.0.0.1:1 does not answer: .*gave up after 2 tries"):
        storage.read("f")


@pytest.mark.parametrize("address", ["namenode:9870", "ftp://namenode", "http://"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("GNOMON_WEBHDFS", address)
    with pytest.raises(StorageError, match=r"GNOMON_WEBHDFS: expected http://namenode:9870, found"):
        storage_at("hdfs://lake/x")


@pytest.fixture
def namenode(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The datanodes that each call leaves out, of a namenode that knows a dead datanode and one that has all data. Both
    are dead where the first is left out and `EMPTY` is read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place, _, query = self.path.partition("?")
            if place == "/data":
                self._answer(200, b"a row")
                return
            [left_out] = parse_qs(query).get("excludedatanodes", [""])
            calls.append(left_out)
            if left_out and place.endswith(EMPTY):
                message = {"exception": "IOException", "message": "Failed to find datanode, suggest to check health"}
                self._answer(403, json.dumps({"RemoteException": message}).encode())
            else:
                self._answer(307, b"", f"http://{self.headers['host']}/data" if left_out else f"http://{DEAD}:1/data")

        def _answer(self, status: int, body: bytes, location: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    calls: list[str] = []
    with HttpServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GNOMON_WEBHDFS", f"http://127.0.0.1:{server.server_port}")
        yield calls
        server.shutdown()
        thread.join()


def test_a_datanode_that_does_not_answer_is_left_out_of_later_calls(namenode: list[str]) -> None:
    for _ in range(2):  # another storage of the process knows it, too
        storage = WebHdfsStorage("hdfs://lake/x", Patience(first_wait=0.01))
        assert storage.read_span("f", (0, 5)) == b"a row"
    assert namenode == ["", DEAD, DEAD]


def test_a_datanode_is_asked_again_where_the_namenode_has_no_other(namenode: list[str]) -> None:
    storage = WebHdfsStorage("hdfs://lake/x", Patience(tries=3, first_wait=0.01))
    with pytest.raises(StorageError, match=f"{DEAD}:1 does not answer"):
        storage.read_span(EMPTY, (0, 5))
    assert namenode == ["", DEAD, ""]


OTHER_DOCUMENTS = {
    "sign-in page": lying.SIGN_IN,
    "no document": b"",
    "empty object": b"{}",
    "list": b"[]",
    "null": b"null",
    "null member": b'{"FileStatus": null, "FileStatuses": null, "boolean": null}',
    "members without members": b'{"FileStatus": {}, "FileStatuses": {"FileStatus": [{}]}, "boolean": 1}',
    "error as success": b'{"RemoteException": {"exception": "IOException", "message": "no"}}',
}


@pytest.mark.parametrize("document", OTHER_DOCUMENTS.values(), ids=OTHER_DOCUMENTS)
def test_a_success_with_another_document_is_no_answer(
    hdfs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: bytes
) -> None:
    """Once, the call is repeated; each time, the error is one line that names the file and the setting."""

    def answer(proxy: LyingProxy, request: Request) -> lying.Answer:
        return lying.Answer(200, {}, document)

    with lying.before(hdfs) as (proxy, behind):
        storage = WebHdfsStorage(behind.place(tmp_path, monkeypatch), Patience(tries=2, first_wait=0.01))
        storage.put_new("a/f", [b"data"])
        calls: dict[str, Callable[[], object]] = {
            "GETFILESTATUS": lambda: storage.read("a/f"),
            "LISTSTATUS": lambda: [info.path for info in storage.list()],
            "OPEN": lambda: storage.read("a/f"),
            "MKDIRS": lambda: storage.move_new("a/f", "b/f"),
            "CREATE": lambda: storage.put_new("g", [b"data"]),
            "DELETE": lambda: storage.delete("b/f"),
        }
        for operation, call in calls.items():
            proxy.lies(answer, lambda request, operation=operation: request.query.get("op") == operation)  # type: ignore[misc]
            with pytest.raises(Unreachable, match=r"another document .* GNOMON_WEBHDFS is http://") as found:
                call()
            assert str(found.value).startswith(f"{storage.root}")
            assert "\n" not in str(found.value)
            proxy.lies(answer, lambda request, operation=operation: request.query.get("op") == operation, 0)  # type: ignore[misc]
            call()
        proxy.plan = None
        assert [info.path for info in storage.list(hidden=True)] == ["g"]


def test_a_token_that_was_renewed_is_read_again(hdfs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The namenode refuses the old one; the cluster itself knows no tokens."""
    expired = {"exception": "InvalidToken", "message": "token (token for lake) is expired"}
    renewed = "new"

    def check(proxy: LyingProxy, request: Request) -> lying.Answer:
        if "delegation=new" in request.target:
            return proxy.forward(replace(request, target=request.target.replace("delegation=new", "user.name=root")))
        monkeypatch.setenv("GNOMON_WEBHDFS_TOKEN", renewed)
        return lying.Answer(401, {}, json.dumps({"RemoteException": expired}).encode())

    with lying.before(hdfs) as (proxy, behind):
        storage = WebHdfsStorage(behind.place(tmp_path, monkeypatch), Patience(tries=2, first_wait=0.01))
        storage.put_new("f", [b"data"])
        proxy.lies(check, lambda request: True)
        monkeypatch.setenv("GNOMON_WEBHDFS_TOKEN", "old")
        assert [info.path for info in storage.list()] == ["f"]
        renewed = "old"
        monkeypatch.setenv("GNOMON_WEBHDFS_TOKEN", "old")
        with pytest.raises(StorageError, match=r"refuses the delegation token: .* is expired; gave up after 2 tries"):
            list(storage.list())


def test_what_the_user_may_not_do_is_said(hdfs_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage_at(hdfs_root).put_new("f", [b"x"])
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-else")
    with pytest.raises(StorageError, match=r"refuses access: .*set HADOOP_USER_NAME"):
        storage_at(hdfs_root).put_new("g", [b"x"])
