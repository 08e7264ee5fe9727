"""Credentials that a catalog vends: when they are asked for, which ones open a location, and how stores take them."""

import base64
import hashlib
import hmac
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from itertools import count, pairwise
from urllib.parse import quote

import pytest

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage import Credential, Vendor, credentials, govern, storage_at, vendor_of
from gnomon.shadow.storage.retries import Passing
from tests.stores.azure import ACCOUNT, API, CONTAINER, KEY
from tests.stores.process import HttpServer, Store


@pytest.fixture(autouse=True)
def _no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_vendors", {})
    monkeypatch.setattr(credentials, "_roots", {})


def key(number: int, end: float | None, prefix: str = "") -> Credential:
    return Credential("s3", prefix, {"access_key_id": f"k{number}"}, {}, end)


def vending(life: float | None, delay: float = 0.0) -> tuple[Vendor, list[float]]:
    """A table whose credentials live so many seconds, and the times at which its catalog was asked."""
    times: list[float] = []

    def ask() -> Sequence[Credential]:
        times.append(time.time())
        time.sleep(delay)
        return [key(len(times), None if life is None else time.time() + life)]

    return Vendor("iceberg:here.db.t", ask), times


def used(vendor: Vendor, seconds: float, threads: int = 8) -> list[Credential]:
    """What threads get that ask for credentials all the time."""
    end = time.monotonic() + seconds

    def use(_: int) -> list[Credential]:
        found = []
        while time.monotonic() < end:
            credential = vendor.credential("s3://b/t/a")
            assert credential is not None
            assert credential.end is None or credential.end > time.time()
            found.append(credential)
            time.sleep(0.005)
        return found

    with ThreadPoolExecutor(threads) as pool:
        return [one for found in pool.map(use, range(threads)) for one in found]


def test_one_thread_renews_for_all_when_two_thirds_of_a_life_have_passed() -> None:
    vendor, times = vending(3.0, delay=0.3)
    found = used(vendor, 7.0)
    assert len({id(one) for one in found}) == len(times)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(pauses) == 3
    assert all(1.9 <= one <= 2.7 for one in pauses), pauses


def test_nobody_waits_for_a_renewal_while_the_old_credentials_serve() -> None:
    vendor, times = vending(3.0)
    old = vendor.credential("s3://b/t/a")
    may_answer, real = threading.Event(), vendor._ask
    vendor._ask = lambda: (may_answer.wait(30), real())[1]
    time.sleep(2.1)
    began = time.monotonic()
    assert all(vendor.credential("s3://b/t/a") is old for _ in range(100))
    assert time.monotonic() - began < 0.5
    may_answer.set()
    end = time.monotonic() + 0.5
    while vendor.credential("s3://b/t/a") is old:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(times) == 2


def test_nobody_waits_for_a_catalog_that_hangs_where_the_environment_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(credentials, "PAUSE_WITHOUT", 0.0)
    may_answer = threading.Event()
    vendor = Vendor("iceberg:here.db.t", lambda: (may_answer.wait(30), ())[1])
    assert vendor.credential("s3://b/t/a") is None
    began = time.monotonic()
    assert all(vendor.credential("s3://b/t/a") is None for _ in range(100))
    assert time.monotonic() - began < 0.1
    may_answer.set()


def test_credentials_without_an_end_are_asked_for_once() -> None:
    vendor, times = vending(None)
    used(vendor, 1.0)
    assert len(times) == 1


def test_what_a_store_calls_expired_is_renewed_once_for_all_threads() -> None:
    vendor, times = vending(3600)
    old = vendor.credential("s3://b/t/a")
    assert old is not None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(vendor.has_expired, [old] * 8))
    assert len(times) == 2
    assert vendor.credential("s3://b/t/a") is not old


def test_credentials_that_have_ended_are_never_used_and_a_catalog_that_is_back_is_asked_again() -> None:
    vendor, _ = vending(1.5)
    real, is_down = vendor._ask, True

    def ask() -> Sequence[Credential]:
        if is_down:
            raise StorageError("the catalog is down", "here")
        return real()  # type: ignore[return-value]

    vendor.credential("s3://b/t/a")
    vendor._ask = ask
    time.sleep(1.6)
    with pytest.raises(Passing, match="have ended, and it vends no others: the catalog is down"):
        vendor.credential("s3://b/t/a")
    is_down = False
    time.sleep(credentials.PAUSE)
    assert vendor.credential("s3://b/t/a") is not None


def test_an_answer_that_takes_too_long_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "ASK_SECONDS", 0.2)
    may_answer = threading.Event()
    vendor = Vendor("iceberg:here.db.t", lambda: (may_answer.wait(30), ())[1])
    assert vendor.credential("s3://b/t/a") is None
    assert vendor.trouble == "the catalog does not answer for 0.2 s"
    may_answer.set()


def test_the_longest_prefix_opens_a_location() -> None:
    prefixes = ["", "s3://b/t/data/", "s3://b/t", "s3a://b/u", "gs://b/t"]
    listed = [Credential(one.partition("://")[0][:2] or "s3", one, {}, {}, None) for one in prefixes]
    vendor = Vendor("iceberg:here.db.t", lambda: listed)
    expected = {
        "s3://b/t/data/a": "s3://b/t/data/",
        "s3://b/t/data": "s3://b/t/data/",
        "s3://b/t/database/a": "s3://b/t",
        "s3://b/t1/a": "",
        "s3://b/u/a": "s3a://b/u",
        "gs://b/t/a": "gs://b/t",
    }
    for location, prefix in expected.items():
        found = vendor.credential(location)
        assert found is not None
        assert found.prefix == prefix, location
    assert vendor.credential("gs://b/u/a") is None


def test_tables_of_one_bucket_have_vendors_of_their_own() -> None:
    made = [govern(f"s3://b/{name}", f"iceberg:here.db.{name}", tuple) for name in ("t", "t/below", "u")]
    assert [vendor_of(f"s3://b/{name}/a/b") for name in ("t", "t/below", "u")] == made
    assert [vendor_of(one) for one in ("s3://b", "s3://b/t1/a", "s3://c/t/a", "/b/t/a", "", "s3://")] == [None] * 6
    assert vendor_of("iceberg:here.db.u") is made[2]
    assert govern("s3://b/moved", "iceberg:here.db.u", tuple) is made[2]


@pytest.mark.process
def test_a_fork_asks_for_itself_though_its_parent_is_asking() -> None:
    may_answer, parent = threading.Event(), os.getpid()

    def ask() -> Sequence[Credential]:
        if os.getpid() == parent:
            may_answer.wait(30)
        return [key(os.getpid(), None)]

    vendor = govern("s3://b/t", "iceberg:here.db.t", ask)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(vendor.credential, "s3://b/t/a")
        while not vendor._lock.locked():
            time.sleep(0.01)
        child = multiprocessing.get_context("fork").Process(target=_has_its_own, args=(parent,))
        child.start()
        child.join(20)
        may_answer.set()
        assert (child.exitcode, asking.result() is not None) == (0, True)


def _has_its_own(parent: int) -> None:
    vendor = vendor_of("s3://b/t/a")
    assert vendor is not None
    found = vendor.credential("s3://b/t/a")
    assert found is not None
    assert found.secrets["access_key_id"] == f"k{os.getpid()}" != f"k{parent}"


@pytest.fixture
def tokens() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that takes the newest token alone, as Google's does, and the tokens that it got."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers["Authorization"])
            is_good = got[-1] == "Bearer token2"
            self.send_response(200 if is_good else 401)
            self.send_header("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT")
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    with HttpServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def test_tokens_of_google_are_renewed_where_the_store_refuses_them(tokens: tuple[str, list[str]]) -> None:
    address, got = tokens
    numbers = count(1)

    def ask() -> Sequence[Credential]:
        token = {"token": f"token{next(numbers)}"}
        return [Credential("gs", "", token, {"base_url": address}, time.time() + 3600)]

    govern("gs://b/t", "iceberg:here.db.t", ask)
    assert storage_at("gs://b/t").read("a") == b"hello"
    assert got == ["Bearer token1", "Bearer token2"]
    vendor_of("gs://b/t").forget()  # type: ignore[union-attr]
    with pytest.raises(StorageError, match=r"refuses access: .*, though the catalog of .* has just vended other"):
        storage_at("gs://b/t").read("a")
    assert got[2:] == ["Bearer token3", "Bearer token4"]


@pytest.mark.store
def test_tokens_of_azure_are_renewed_where_the_store_refuses_them(
    azure: Store, azure_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_at(azure_root).put_new("a", [b"hello"])
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"of another account").decode())
    ends = iter([time.time() - 3600, time.time() + 3600])

    def ask() -> Sequence[Credential]:
        return [Credential("az", "", {"sas_token": sas(next(ends))}, {"account_name": ACCOUNT}, time.time() + 3600)]

    vendor = govern(azure_root, "iceberg:here.db.t", ask)
    assert storage_at(azure_root).read("a") == b"hello"
    assert next(ends, None) is None, "the first token had ended, though the catalog said otherwise"
    assert vendor.trouble == ""


def sas(end: float) -> str:
    """A token that reads the container until `end`, by Azure's rules for a service SAS."""
    expiry = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    signed = ["rl", "", expiry, f"/blob/{ACCOUNT}/{CONTAINER}", "", "", "", API, "c", "", "", "", "", "", "", ""]
    signature = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
    return f"sp=rl&se={quote(expiry)}&sv={API}&sr=c&sig={quote(base64.b64encode(signature).decode(), safe='')}"
