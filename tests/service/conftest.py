"""Fixtures: tests share the indexes that they only read. A test that changes an index makes its own."""

from pathlib import Path

import pytest

from gnomon.service.indexes.threads import RequestThreads
from gnomon.service.settings.table import Settings
from tests.service.lake import Client, make_crawl, make_orders


@pytest.fixture(scope="session")
def crawl_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return make_crawl(tmp_path_factory.mktemp("crawl"))


@pytest.fixture(scope="session")
def crawl(crawl_settings: Settings) -> Client:
    return Client(crawl_settings)


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(make_orders(tmp_path_factory.mktemp("orders")))


@pytest.fixture(params=["from memory where it tells", "in a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to an answer, for tests of routes."""
    way: str = request.param
    if way == "in a thread":
        monkeypatch.setattr(RequestThreads, "hold_at_once", lambda *_: None)
    return way


@pytest.fixture
def own(tmp_path: Path) -> Client:
    """An index in `tmp_path` that the test may break."""
    return Client(make_crawl(tmp_path))
