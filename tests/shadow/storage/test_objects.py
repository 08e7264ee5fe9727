"""Object stores that fail: retries, lost replies, errors."""

import itertools
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
import trustme
from obstore.exceptions import GenericError

from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError, Unreachable
from gnomon.shadow.storage.object_clients import connect
from gnomon.shadow.storage.objects import LARGEST_PUT, ObjectStorage
from gnomon.shadow.storage.retries import Passing, Patience, retried
from tests.stores.process import HttpServer

QUICK = Patience(tries=3, first_wait=0.01, longest_wait=0.02, connect=1, read=0.3, request=0.6)


@pytest.fixture
def storage() -> ObjectStorage:
    return ObjectStorage(f"memory://{uuid.uuid4().hex}/root", QUICK)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, failures: list[Callable[[Callable[[], Any]], Any]]) -> None:
    """Replace the next calls of an obstore function by `failures`, each of which gets the real call."""
    real, steps = getattr(obstore, name), iter(failures)

    def call(*args: Any, **options: Any) -> Any:
        step = next(steps, None)
        return step(lambda: real(*args, **options)) if step else real(*args, **options)

    monkeypatch.setattr(obstore, name, call)


def lost(call: Callable[[], Any]) -> None:
    """Make the call, and lose the reply."""
    call()
    raise GenericError("Generic S3 error: Error performing PUT: operation timed out")


def busy(call: Callable[[], Any]) -> None:
    raise GenericError("Generic S3 error: Server returned error response: status code: 503 Slow Down")


def test_a_put_whose_reply_was_lost_is_found_to_be_ours(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "put", [lost])
    storage.put_new("f", [b"x"])
    assert storage.read("f") == b"x"


def test_first_reads_side_by_side_connect_once(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put_new("f", [b"x"])
    fresh, made, begun = ObjectStorage(storage.root, QUICK), list[Any](), threading.Barrier(4)

    def slowly(*args: Any) -> Any:
        time.sleep(0.05)
        made.append(connect(*args))
        return made[-1]

    def read() -> None:
        begun.wait()
        assert fresh.read("f") == b"x"

    monkeypatch.setattr("gnomon.shadow.storage.objects.connect", slowly)
    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(made) == 1


def test_a_put_that_was_not_done_is_made_again(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "put", [busy, busy])
    storage.put_new("f", [b"x"])
    assert storage.read("f") == b"x"


@pytest.mark.parametrize("theirs", [b"theirs", b"ours"])
def test_a_name_taken_while_a_reply_was_lost_is_not_ours_even_with_the_same_bytes(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, theirs: bytes
) -> None:
    def overtaken(call: Callable[[], Any]) -> None:
        ObjectStorage(storage.root).put_new("f", [theirs])
        busy(call)

    failing(monkeypatch, "put", [overtaken])
    with pytest.raises(AlreadyExists, match="f: the name is taken"):
        storage.put_new("f", [b"ours"])
    assert storage.read("f") == theirs


def test_a_put_that_is_never_answered_is_given_up_in_one_line(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "put", [busy] * 9)
    with pytest.raises(StorageError, match=r"root/f: the store does not answer: .*503.*gave up after 3 tries") as error:
        storage.put_new("f", [b"x"])
    assert "\n" not in str(error.value)


def test_a_conflict_is_not_taken_for_a_taken_name(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(call: Callable[[], Any]) -> None:
        raise obstore.exceptions.AlreadyExistsError("status code: 409 Conflict: ConditionalRequestConflict")

    failing(monkeypatch, "put", [conflict])
    storage.put_new("f", [b"x"])
    assert storage.read("f") == b"x"


def test_a_listing_that_breaks_off_is_begun_again(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        storage.put_new(name, [b"x"])

    def breaks_off(call: Callable[[], Any]) -> Iterator[Any]:
        yield from itertools.islice(call(), 1)
        busy(call)

    failing(monkeypatch, "list", [breaks_off])
    assert [info.path for info in storage.list()] == ["a", "b", "c"]


def test_a_file_too_large_for_one_put_is_refused(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.shadow.storage.objects.LARGEST_PUT", 3)
    assert LARGEST_PUT == 5 << 30
    with pytest.raises(StorageError, match="f: 4 bytes; a create-only put takes 3 at most; run gnomon rebucket"):
        storage.put_new("f", [b"12", b"34"])


def test_the_mark_of_a_folder_is_no_file(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("p=1/f", "p=2", "empty"):
        storage.put_new(name, [b""])
    head = obstore.head

    def marked(store: Any, path: str) -> Any:
        if path.endswith("p=2"):
            raise FileNotFoundError(path)
        return head(store, path)

    monkeypatch.setattr(obstore, "head", marked)
    assert [info.path for info in storage.list()] == ["empty", "p=1/f"]


def test_the_mark_of_a_folder_by_older_programs_is_no_file(storage: ObjectStorage) -> None:
    storage.put_new("p=1/f", [b"x"])
    storage.put_new("p=1_$folder$", [b""])
    storage.put_new("data_$folder$", [b"x"])
    assert [info.path for info in storage.list()] == ["data_$folder$", "p=1/f"]


def test_an_open_by_what_is_on_record_makes_no_call(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put_new("f", [b"0123456789"])
    [known] = storage.list()
    calls: list[str] = []
    for name in ("head", "get", "list"):
        failing(monkeypatch, name, [lambda call, name=name: (calls.append(name), call())[1]] * 9)
    with storage.open("f", known=known) as file:
        assert calls == []
        file.read_ranges([(0, 1), (9, 1)])
    assert calls == ["get"]


def test_a_file_rewritten_between_two_reads_is_changed(storage: ObjectStorage) -> None:
    storage.put_new("f", [b"old" * 100])
    [known] = storage.list()
    with storage.open("f", known=known) as file:
        assert file.read_range(0, 3) == b"old"
        storage.delete("f")
        storage.put_new("f", [b"new" * 100])
        with pytest.raises(FileChanged, match="f: the file changed"):
            file.read_range(0, 3)


def test_waits_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)  # ours: other threads sleep, too
    monkeypatch.setattr("gnomon.shadow.storage.retries.time", clock)

    def fails() -> None:
        raise Passing("s3://b/f: busy")

    with pytest.raises(
        Unreachable, match=r"^s3://b/f: busy; gave up after 6 tries in 0\.0 s; run it again when the store answers$"
    ):
        retried(fails, Patience(), "s3://b/f")
    assert all(0.5 <= wait / full <= 1 for wait, full in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6], strict=True))


# -- over HTTP ---------------------------------------------------------------------------------------------------------


@contextmanager
def answering(answers: list[tuple[int, bytes]], tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server with these answers, repeating the last one. Yields its URL, and the requests that it got."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = answers[min(len(seen), len(answers) - 1)]
            seen.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with HttpServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_busy_store_is_asked_again(settings: pytest.MonkeyPatch) -> None:
    with answering([(503, b""), (500, b""), (200, b"data")]) as (url, seen):
        settings.setenv("AWS_ENDPOINT_URL", url)
        assert ObjectStorage("s3://bucket/p", QUICK).read("a b%") == b"data"
    assert seen == ["GET /bucket/p/a%20b%25"] * 3


@pytest.mark.parametrize(
    ("status", "body", "message", "requests"),
    [
        (
            403,
            b"<?xml?><Error><Code>AccessDenied</Code></Error>",
            "refuses access .*AccessDenied.*AWS_ACCESS_KEY_ID",
            1,
        ),
        (404, b"<?xml?><Error><Code>NoSuchBucket</Code></Error>", "the store has no such bucket", 1),
        (400, b"<?xml?><Error><Code>KeyTooLong</Code></Error>", "the store refuses: .*400.*KeyTooLong", 1),
        (
            416,
            b"<?xml?><Error><Code>InvalidRange</Code></Error>",
            "does not answer.*416.*InvalidRange; gave up after 3",
            3,
        ),
        (
            400,
            b"<?xml?><Error><Code>ExpiredToken</Code></Error>",
            "refuses access.*ExpiredToken; gave up after 3 tries.*AWS_ACCESS_KEY_ID",
            3,
        ),
        (503, b"<?xml?><Error><Code>SlowDown</Code></Error>", "does not answer.*SlowDown; gave up after 3 tries", 3),
    ],
)
@pytest.mark.parametrize("what", ["read", "list", "put_new"])
def test_a_refusal_is_one_line(
    settings: pytest.MonkeyPatch, status: int, body: bytes, message: str, requests: int, what: str
) -> None:
    with answering([(status, body)]) as (url, seen):
        settings.setenv("AWS_ENDPOINT_URL", url)
        storage = ObjectStorage("s3://bucket/p", QUICK)
        calls = {
            "read": lambda: storage.read("f"),
            "list": lambda: list(storage.list("f")),
            "put_new": lambda: storage.put_new("f", [b"x"]),
        }
        with pytest.raises(StorageError, match=rf"^s3://bucket/p/f: .*{message}") as caught:
            calls[what]()
        assert "\n" not in str(caught.value)
        assert len(seen) == requests


@pytest.mark.parametrize("status", [409, 412])
def test_what_means_something_to_a_put_alone_is_not_believed_of_a_read(
    settings: pytest.MonkeyPatch, status: int
) -> None:
    with answering([(status, b"")]) as (url, _):
        settings.setenv("AWS_ENDPOINT_URL", url)
        storage = ObjectStorage("s3://bucket/p", QUICK)
        calls = (lambda: storage.read("f"), lambda: storage.open("f"), lambda: list(storage.list("f")))
        for call in calls:
            with pytest.raises(StorageError, match=r"^s3://bucket/p/f: the store does not answer"):
                call()


@pytest.mark.parametrize("address", ["minio:9000", "127.0.0.1:9000", "http://", "ftp://me:secret@host"])
def test_an_address_that_is_none_is_refused(settings: pytest.MonkeyPatch, address: str) -> None:
    settings.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(StorageError, match="AWS_ENDPOINT_URL: expected http://host:port or https://host") as caught:
        ObjectStorage("s3://bucket/p", QUICK).read("f")
    assert "secret" not in str(caught.value)


def test_an_address_is_shown_without_its_password(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AWS_ENDPOINT_URL", "http://me:secret@127.0.0.1:1")
    with pytest.raises(StorageError, match="does not answer") as caught:
        ObjectStorage("s3://bucket/p", QUICK).read("f")
    assert "secret" not in str(caught.value)


def test_a_client_told_not_to_create_only_writes_nothing(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(StorageError, match="f: a name or setting that the store cannot hold"):
        ObjectStorage("s3://bucket/p", QUICK).put_new("f", [b"x"])


def test_a_panic_of_the_client_is_a_refusal(monkeypatch: pytest.MonkeyPatch, storage: ObjectStorage) -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    monkeypatch.setattr(obstore, "get", lambda *_, **__: (_ for _ in ()).throw(panic("request valid: no scheme")))
    with pytest.raises(StorageError, match="f: a setting that the store's client cannot take: request valid"):
        storage.read("f")


ADDRESSES = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}


@pytest.fixture
def all_settings(settings: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Settings of all stores."""
    settings.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    settings.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    settings.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    return settings


@pytest.mark.parametrize("scheme", ADDRESSES)
def test_a_certificate_that_is_not_trusted_is_refused_at_the_first_try_and_may_be_trusted(
    all_settings: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with answering([(200, b"data")], tls) as (url, seen):
        all_settings.setenv(ADDRESSES[scheme], url)
        message = (
            rf"^{scheme}://bucket/p/f: the certificate of the store is not trusted \(UnknownIssuer\); "
            "set SSL_CERT_FILE to a PEM file of the authority that signed it$"
        )
        with pytest.raises(StorageError, match=message) as caught:
            ObjectStorage(f"{scheme}://bucket/p").read("f")
        assert not isinstance(caught.value, Unreachable)
        assert seen == []
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        all_settings.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert ObjectStorage(f"{scheme}://bucket/p").read("f") == b"data"


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize("scheme", ADDRESSES)
def test_a_credential_that_is_not_trusted_is_refused_at_the_first_try(
    all_settings: pytest.MonkeyPatch, scheme: str, status: int
) -> None:
    with answering([(status, b"<?xml?><Error><Code>InvalidCredential</Code></Error>")]) as (url, seen):
        all_settings.setenv(ADDRESSES[scheme], url)
        with pytest.raises(StorageError, match=rf"^{scheme}://bucket/p/f: the store refuses.*InvalidCred"):
            ObjectStorage(f"{scheme}://bucket/p").read("f")
    assert len(seen) == 1


def test_a_token_that_is_refused_is_not_asked_for_again(all_settings: pytest.MonkeyPatch) -> None:
    all_settings.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    for name in ("CLIENT_ID", "CLIENT_SECRET", "TENANT_ID"):
        all_settings.setenv(f"AZURE_STORAGE_{name}", "x")
    with answering([(401, b'{"error": "invalid_client"}')]) as (url, seen):
        all_settings.setenv("AZURE_STORAGE_ENDPOINT", url)
        all_settings.setenv("AZURE_STORAGE_AUTHORITY_HOST", url)
        with pytest.raises(StorageError, match=r"^az://bucket/p/f: the store refuses access .*token.*invalid_client"):
            ObjectStorage("az://bucket/p").read("f")
    assert seen == ["POST /x/oauth2/v2.0/token"]


def test_a_setting_of_which_no_request_can_be_made_is_refused_at_the_first_try(
    settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client asks for a token over TLS alone."""
    settings.delenv("AWS_ACCESS_KEY_ID")
    settings.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "token").write_text("token")
    settings.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    settings.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")
    settings.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match=r"^s3://bucket/p/f: a setting of the store's client is wrong: ") as caught:
        ObjectStorage("s3://bucket/p").read("f")
    assert not isinstance(caught.value, Unreachable)


@pytest.mark.slow
def test_a_store_that_is_not_there_or_says_nothing_is_given_up(settings: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        settings.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        storage = ObjectStorage("s3://bucket/p", QUICK)
        for call in (lambda: storage.read("f"), lambda: storage.put_new("f", [b"x"]), lambda: storage.open("f")):
            with pytest.raises(StorageError, match=r"^s3://bucket/p/f: the store does not answer: .*gave up after 3"):
                call()
    with pytest.raises(StorageError, match="does not answer"):
        ObjectStorage("s3://bucket/p", QUICK).read("f")


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_stores_are_made_from_their_variables(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert connect(scheme, "bucket", QUICK).puts is not None
    with pytest.raises(StorageError, match=rf"^{scheme}://bucket/x/f: the store does not answer"):
        ObjectStorage(f"{scheme}://bucket/x", QUICK).read("f")


# -- moves -------------------------------------------------------------------------------------------------------------


def test_a_file_is_moved_by_a_copy_of_the_store_and_leaves_nothing_behind(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put_new("_staged/x", [b"data"])
    storage.put_new("_staged/y", [b"more"])
    copies: list[object] = []
    real = obstore.copy

    def copy(*arguments: Any, **options: Any) -> None:
        copies.append(options)
        real(*arguments, **options)

    monkeypatch.setattr(obstore, "copy", copy)
    storage.move_new("_staged/x", "x")
    assert copies == [{"overwrite": False}] * 3  # two of them are the proof that copies are create-only
    storage.move_new("_staged/y", "y")
    assert len(copies) == 4
    assert [(info.path, storage.read(info.path)) for info in storage.list(hidden=True)] == [
        ("x", b"data"),
        ("y", b"more"),
    ]


@pytest.mark.parametrize("how", ["overwrites", "refuses", "copies nothing"])
def test_where_a_store_has_no_copy_that_is_create_only_files_are_moved_by_a_put(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    real = obstore.copy

    def copy(store: Any, path: str, target: str, *, overwrite: bool) -> None:
        if how == "overwrites":
            real(store, path, target)
        elif how == "refuses":
            raise GenericError("Generic S3 error: status code: 501 Not Implemented")

    monkeypatch.setattr(obstore, "copy", copy)
    for name in ("from", "to"):
        storage.put_new(name, [name.encode()])
    with pytest.raises(AlreadyExists, match="to: the name is taken"):
        storage.move_new("from", "to")
    assert (storage.read("from"), storage.read("to")) == (b"from", b"to")
    storage.move_new("from", "free")
    assert [(info.path, storage.read(info.path)) for info in storage.list(hidden=True)] == [
        ("free", b"from"),
        ("to", b"to"),
    ]


@pytest.mark.parametrize("theirs", [None, b"theirs", b"data"])
def test_a_copy_whose_reply_was_lost_is_settled_by_what_has_the_name(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, theirs: bytes | None
) -> None:
    storage.put_new("probe", [b"x"])
    storage.move_new("probe", "probed")
    storage.put_new("from", [b"data"])

    def overtaken(call: Callable[[], Any]) -> None:
        ObjectStorage(storage.root).put_new("to", [theirs or b""])
        busy(call)

    failing(monkeypatch, "copy", [overtaken if theirs else lost])
    if theirs == b"theirs":
        with pytest.raises(AlreadyExists, match="to: the name is taken"):
            storage.move_new("from", "to")
        assert storage.read("from") == b"data"
    else:
        storage.move_new("from", "to")
        assert "from" not in [info.path for info in storage.list()]
    assert storage.read("to") == (theirs or b"data")


def test_what_a_store_does_not_copy_is_put(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put_new("probe", [b"x"])
    storage.move_new("probe", "probed")

    def refuses(call: Callable[[], Any]) -> None:
        raise GenericError("Generic S3 error: status code: 400 InvalidRequest")

    storage.put_new("from", [])
    failing(monkeypatch, "copy", [refuses])
    storage.move_new("from", "to")
    assert storage.read("to") == b""
