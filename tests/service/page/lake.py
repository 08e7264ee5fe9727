"""Indexes with values that are hard to show, behind a server on a socket."""

import datetime as dt
import decimal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette

from gnomon.service.settings.table import Settings
from tests.service.lake import make_orders
from tests.shadow.make_index import index_source, write_source

HTML = (
    '<!doctype html><html><head><title>Shop</title><meta http-equiv="refresh" content="0;url=/healthz"></head><body>'
    '<h1>Cotton bicycle</h1><p onclick="top.pwned = 1">Made of <b>cotton</b>.</p>'
    '<script>top.pwned = 1; document.body.innerHTML = "run"</script>'
    '<img src="/healthz" onerror="top.pwned = 1"><a id="out" href="/healthz">away</a>'
    + "".join(f"<p>Paragraph {i}: the quick brown fox jumps over the lazy dog.</p>" for i in range(30))
    + "</body></html>"
)
EXACT_JSON = (
    '{"big": 12345678901234567890, "price": 1.10, "__proto__": 1, "2": "b", "1": "a", "tags": ["x", {"y": null}]}'
)
URLS = [
    "https://shop.example/cotton/",
    "https://shop.example/a//b",
    ".",
    "..",
    "%ff",
    "100%25",
    "a%2Fb",
    "a/b",
    "?x=1#y",
    "a+b c",
    "Straße/日本 \U0001f6b2",
    "line\nend\n",
    "",
    "/",
    "zero\u200bwidth",
    "<b>bold</b>&amp;",
    "it's",
]
MANY, MANY_ROWS = "many", 130
BINARY = bytes(range(256)) * 3


def pages_table(urls: list[str], day: int = 1) -> pa.Table:
    n = range(len(urls))
    return pa.table(
        {
            "url": urls,
            "merchant": pa.array([2**53 + 1 + i for i in n], pa.int64()),
            "unsigned": pa.array([2**64 - 1 - i for i in n], pa.uint64()),
            "price": pa.array([decimal.Decimal("12345678901234567890.10") + i for i in n], pa.decimal128(38, 2)),
            "score": pa.array([float("nan"), float("inf"), 0.1, *[1e300] * len(urls)][: len(urls)], pa.float64()),
            "crawled_at": pa.array(
                [dt.datetime(2026, 1, day, 12, 0, i % 60, 123456) for i in n], pa.timestamp("us", "UTC")
            ),
            "robots": pa.array([None if i % 2 == 0 else True for i in n], pa.bool_()),
            "html": [HTML] * len(urls),
            "meta": [EXACT_JSON] * len(urls),
            "offers": pa.array([[NESTED_ROW, None] for _ in n], OFFERS),
            "raw": pa.array([BINARY for _ in n], pa.binary()),
            "note": ["right \u202eto left, a nul \x00, and \ufffd itself", *["plain"] * len(urls)][: len(urls)],
        }
    )


NESTED_ROW = {"sku": "A-17", "id": 2**60 + 1, "sizes": ["S", "M", None]}
OFFERS = pa.list_(pa.struct([("sku", pa.string()), ("id", pa.int64()), ("sizes", pa.list_(pa.string()))]))


def make_lake(folder: Path) -> Settings:
    """`pages` of three days and three snapshots, keyed by URL; `orders` keyed by country and id; `wide` of 400
    partitions and 4,096 buckets."""
    for day in (1, 2, 3):
        urls = URLS if day == 1 else [f"https://shop.example/{day}/{i}" for i in range(40 * day)]
        write_source(folder / "lake", {f"dt=2026-01-0{day}/p.parquet": pages_table(urls, day)})
        index_source(folder / "lake", folder / "pages", ["url"], buckets=16)
    write_source(folder / "lake", {"dt=2026-01-04/p.parquet": pages_table([MANY] * MANY_ROWS, 4)})
    index_source(folder / "lake", folder / "pages", ["url"])
    make_orders(folder / "o")
    return Settings(indexes=[f"pages={folder / 'pages'}", f"orders={folder / 'o' / 'shadow'}"])


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The address of an app that is served on a free port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # clients that connect before the thread serves wait
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
