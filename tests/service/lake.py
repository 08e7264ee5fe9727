"""Small sources with their indexes, and requests to an app without a socket."""

import asyncio
import datetime as dt
import decimal
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from starlette.applications import Starlette

from gnomon.jobs.build import build
from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from tests.shadow.make_index import index_source, write_source

# Each can be damaged in its own way between a client and a handler.
ODD_KEYS = [
    "https://example.com/a//b",
    "a/../b",
    "../../etc/passwd",
    ".",
    "a%2Fb",
    "a/b",
    "100%",
    "100%25",
    "?x=1#y",
    "a+b c",
    "Straße/日本",
    "line\nend\n",
    "",
    "/",
]
TWICE = "twice"


def crawl_table(urls: list[str]) -> pa.Table:
    n = range(len(urls))
    return pa.table(
        {
            "url": urls,
            "n": pa.array([2**60 + i for i in n], pa.int64()),
            "price": pa.array([decimal.Decimal(i) / 100 for i in n], pa.decimal128(10, 2)),
            "raw": pa.array([bytes([i, 255]) for i in n], pa.binary()),
            "at": pa.array([dt.datetime(2026, 1, 1, 0, 0, i % 60) for i in n], pa.timestamp("us", "UTC")),
        }
    )


def make_crawl(folder: Path) -> Settings:
    """Make two partitions, keyed by URL: the odd keys, and one that occurs three times."""
    tables = {
        "dt=2026-01-01/p.parquet": crawl_table([*ODD_KEYS, TWICE, TWICE]),
        "dt=2026-01-02/p.parquet": crawl_table([TWICE, "second"]),
    }
    write_source(folder / "lake", tables)
    index_source(folder / "lake", folder / "shadow", ["url"])
    return Settings(indexes=[str(folder / "shadow")])


def make_orders(folder: Path) -> Settings:
    """Make a source keyed by country and id; both may be null."""
    table = pa.table(
        {
            "country": ["de", "de", None, "fr"],
            "id": pa.array([1, 2, 3, None], pa.int32()),
            "day": [dt.date(2026, 1, d) for d in (1, 2, 3, 4)],
        }
    )
    write_source(folder / "lake", {"orders.parquet": table})
    index_source(folder / "lake", folder / "shadow", ["country", "id"])
    return Settings(indexes=[str(folder / "shadow")])


def make_visits(folder: Path) -> Settings:
    """Make a source keyed by a UUID, a time of day, a moment in nanoseconds and an unsigned number."""
    table = pa.table(
        {
            "id": pa.array([bytes(range(16))], pa.uuid()),
            "time": pa.array([45_000_005], pa.time32("ms")),
            "at": pa.array([1767270600_123456789], pa.timestamp("ns", "UTC")),
            "n": pa.array([2**64 - 1], pa.uint64()),
        }
    )
    write_source(folder / "lake", {"visits.parquet": table})
    index_source(folder / "lake", folder / "shadow", ["id", "time", "at", "n"])
    index_source(folder / "lake", folder / "by_id", ["id"])
    return Settings(indexes=[str(folder / "shadow")])


def make_clone(folder: Path) -> Settings:
    """An index of a Delta table whose files lie outside of the table's folder, and are newer than the index in part."""
    from deltalake import write_deltalake  # the tests of the extra `service` alone run without it

    private, clone = folder / "private", folder / "clone"
    for begin in (0, 1, 2):
        ids = pa.table({"id": pa.array(range(begin, 60, 3)), "n": [begin] * 20})
        write_deltalake(str(private), ids, mode="append")
    (clone / "_delta_log").mkdir(parents=True)
    for version in sorted((private / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in version.read_text().splitlines()]
        for action in lines:
            if "add" in action:
                action["add"]["path"] = f"file://{private}/{action['add']['path']}"
        (clone / "_delta_log" / version.name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        if version.name.endswith("1.json"):
            build(None, f"delta:{clone}", str(folder / "index"), ["id"], buckets=2)
    return Settings(indexes=[str(folder / "index")], freshness="newest")


def add_day(folder: Path, day: str, urls: list[str]) -> int:
    """Add a partition and index it. Returns the new snapshot."""
    write_source(folder / "lake", {f"dt={day}/p.parquet": crawl_table(urls)})
    return index_source(folder / "lake", folder / "shadow", ["url"]).number


class Client:
    """Requests to an app, the target sent exactly as given."""

    def __init__(self, settings: Settings, app: Starlette | None = None, follows: bool = False) -> None:
        self.app: Starlette = app or create_app(settings)
        self.inner = self.app  # a test may set `app` to an app around it
        self.follows = follows  # whether the first request starts the threads that look for newer snapshots
        self.served = self.app.state.service.indexes.default

    def ask(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None, peer: str = ""
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return asyncio.run(self._ask(method, target, content, headers, peer or "127.0.0.1"))

    def get(self, target: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.ask("GET", target, headers=headers)

    def post(self, body: object, query: str = "") -> httpx.Response:
        return self.ask("POST", f"/rows{query}", body)

    async def _ask(
        self, method: str, target: str, content: bytes, headers: Mapping[str, str] | None, peer: str
    ) -> httpx.Response:
        url = httpx.URL("http://gnomon/").copy_with(raw_path=target.encode("ascii"))
        assert url.raw_path == target.encode("ascii"), "the client changed the target"
        following = self.inner.state.following
        held = not (self.follows or following.started)
        following.started |= held
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=(peer, 50_000))
        try:
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.send(client.build_request(method, url, content=content, headers=headers))
        finally:
            following.started &= not held


def rows(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    found: list[dict[str, Any]] = answer["rows"]
    return found
