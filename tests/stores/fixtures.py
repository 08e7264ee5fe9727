"""The stores, each started when a test first asks for it, and a folder in one for a test."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stores.azure import azure_server
from tests.stores.google import google_server
from tests.stores.hdfs import hdfs_cluster
from tests.stores.iceberg_rest import rest_catalog
from tests.stores.process import Store
from tests.stores.s3 import s3_server
from tests.stores.web import Hub, WebServer

if TYPE_CHECKING:
    from tests.stores.vending import CheckedS3, Vending


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An S3 server for the whole run."""
    with s3_server(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server of Azure's Blob storage for the whole run."""
    with azure_server(tmp_path_factory.mktemp("azure")) as store:
        yield store


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server of Google Cloud Storage for the whole run."""
    with google_server(tmp_path_factory.mktemp("google")) as store:
        yield store


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A namenode and a datanode for the whole run."""
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as store:
        yield store


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Iceberg REST catalog for the whole run."""
    with rest_catalog(tmp_path_factory.mktemp("iceberg-rest")) as address:
        yield address


@pytest.fixture
def s3_root(s3: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return s3.place(tmp_path, monkeypatch)


@pytest.fixture
def azure_root(azure: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return azure.place(tmp_path, monkeypatch)


@pytest.fixture
def google_root(google: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return google.place(tmp_path, monkeypatch)


@pytest.fixture
def hdfs_root(hdfs: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return hdfs.place(tmp_path, monkeypatch)


@pytest.fixture
def checked(s3: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator["CheckedS3"]:
    """A proxy before the S3 server that checks credentials; the environment leads to it."""
    from tests.stores.vending import checked_s3

    with checked_s3(s3) as proxy:
        for name, value in proxy.variables.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def vended_place(s3: Store, tmp_path: Path) -> str:
    """A place of the test's own on the S3 server."""
    return f"{s3.address}/{tmp_path.parent.name}/{tmp_path.name}"


@pytest.fixture
def vending(
    checked: "CheckedS3", s3: Store, tmp_path: Path, vended_place: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator["Vending"]:
    """A catalog that vends credentials for that proxy, as pyiceberg's catalog `here`, with the namespace `db`."""
    from pyiceberg.utils.config import Config

    from tests.stores.vending import vending_catalog

    monkeypatch.setattr("gnomon.shadow.storage.credentials._vendors", {})
    monkeypatch.setattr("gnomon.shadow.storage.credentials._roots", {})
    with vending_catalog(checked, s3, tmp_path, f"{vended_place}/lake") as running:
        for name, value in {"type": "rest", "uri": running.uri, "token": running.token}.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__HERE__{name.upper()}", value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read at import
        running.catalog.create_namespace("db")
        yield running


@pytest.fixture(params=["s3", "google", "azure", "hdfs"])
def remote_store(request: pytest.FixtureRequest) -> Store:
    """Each kind of server in turn."""
    store: Store = request.getfixturevalue(request.param)
    return store


@pytest.fixture
def remote_root(remote_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return remote_store.place(tmp_path, monkeypatch)


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture
def hub(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub whose large files are on another server."""
    with Hub(web) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server
