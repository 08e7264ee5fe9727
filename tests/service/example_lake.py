"""The small lake and the indexes of the interface's examples (`service/api/examples.json`, docs/reference/http.md)."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from gnomon.service.settings.table import Settings
from tests.shadow.make_index import index_source, write_source


def _pages(day: int, titles: dict[str, str]) -> pa.Table:
    fetched = [dt.datetime(2026, 1, day, 8, minute, tzinfo=dt.UTC) for minute in range(len(titles))]
    return pa.table(
        {
            "url": list(titles),
            "title": list(titles.values()),
            "fetched": pa.array(fetched, pa.timestamp("us", "UTC")),
            "size": pa.array([len(title) * 100 for title in titles.values()], pa.int64()),
        }
    )


def make_examples(folder: Path) -> Settings:
    """Two indexes: `pages` by URL, in two partitions; `orders` by country and number."""
    days = {
        "dt=2026-01-01/part-0.parquet": _pages(1, {"https://example.com/": "Home", "https://example.com/a?b=1": "A"}),
        "dt=2026-01-02/part-0.parquet": _pages(2, {"https://example.com/": "Home again"}),
    }
    write_source(folder / "crawl", days)
    index_source(folder / "crawl", folder / "pages", ["url"])
    orders = pa.table(
        {
            "country": ["de", "de", "fr", None],
            "id": pa.array([1, 2, 2, 3], pa.int32()),
            "total": pa.array([Decimal(n) for n in ("9.90", "120.00", "7.50", "1.00")], pa.decimal128(10, 2)),
        }
    )
    write_source(folder / "sales", {"part-0.parquet": orders})
    index_source(folder / "sales", folder / "orders", ["country", "id"])
    return Settings(indexes=[f"pages={folder / 'pages'}", f"orders={folder / 'orders'}"])
