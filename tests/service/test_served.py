"""service/served.py: newer snapshots are picked up, bad ones refused, old ones stay within reach."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.indexes import Indexes
from service.served import ServedIndex
from service.settings import Settings
from shadow import IndexNotFound
from tests.service.lake import Client, add_day, crawl_table, rows
from tests.shadow.make_index import index_source, write_source


def of_index(ready: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = ready.json()["indexes"]["shadow"]
    return found


SNAPSHOT = "_shadow/snapshots/{:020d}.json"


def test_a_newer_snapshot_is_served_after_a_look(own: Client, tmp_path: Path) -> None:
    assert add_day(tmp_path, "2026-01-03", ["third"]) == 2
    assert own.get("/rows/third").json()["snapshot"] == 1
    assert own.served.refresh()
    answer = own.get("/rows/third").json()
    assert (answer["count"], answer["snapshot"]) == (1, 2)
    assert of_index(own.get("/readyz"))["snapshot"] == 2
    assert not own.served.refresh()


def test_the_running_app_looks_by_itself(tmp_path: Path, own: Client) -> None:
    app = create_app(Settings(indexes=[str(tmp_path / "shadow")], refresh_seconds=0.01))
    served: ServedIndex = app.state.service.indexes.default

    async def follow() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(add_day, tmp_path, "2026-01-03", ["third"])
            async with asyncio.timeout(30):
                while served.index.view.snapshot.number != 2:
                    await asyncio.sleep(0.01)

    asyncio.run(follow())


def test_a_bad_new_snapshot_is_refused_and_the_old_one_served_on(
    own: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_day(tmp_path, "2026-01-03", ["third"])
    path = tmp_path / "shadow" / SNAPSHOT.format(2)
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    with caplog.at_level(logging.ERROR):
        assert not own.served.refresh()
        assert not own.served.refresh()
    assert len(caplog.records) == 1, "told once"
    assert own.get("/rows/second").json()["snapshot"] == 1
    ready = own.get("/readyz")
    assert (ready.status_code, of_index(ready)["snapshot"]) == (200, 1)
    assert of_index(ready)["refused"].startswith(SNAPSHOT.format(2))
    assert str(tmp_path) not in ready.text
    path.write_bytes(good)
    assert own.served.refresh()
    assert of_index(own.get("/readyz"))["refused"] is None


def test_a_stale_pointer_is_mended_by_a_snapshot_committed_since_the_last_look(own: Client, tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": crawl_table(["second", "third"])})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    answer = own.get("/rows/second").json()
    assert (answer["count"], answer["snapshot"]) == (1, 2)


def test_a_snapshot_asked_for_by_number_is_answered_as_it_was(own: Client, tmp_path: Path) -> None:
    add_day(tmp_path, "2026-01-03", ["second"])
    own.served.refresh()
    now, then = (own.get(f"/rows/second{query}").json() for query in ("", "?snapshot=1"))
    assert (now["snapshot"], now["count"]) == (2, 2)
    assert (then["snapshot"], then["count"]) == (1, 1)
    assert own.ask("HEAD", "/rows/second?snapshot=1").status_code == 200
    assert own.post({"keys": ["second"]}, "?snapshot=1").json()["snapshot"] == 1


def test_only_a_few_old_snapshots_stay_open(tmp_path: Path, own: Client) -> None:
    for day in (3, 4, 5):
        add_day(tmp_path, f"2026-01-{day:02d}", ["more"])
    served = Indexes(Settings(indexes=[str(tmp_path / "shadow")], pinned_snapshots=2)).default
    first = served.at(1)
    assert served.at(1) is first
    served.at(2)
    served.at(3)
    assert served.at(1) is not first
    assert served.at(4) is served.index


def test_readyz_counts_what_is_not_covered(own: Client, tmp_path: Path) -> None:
    write_source(
        tmp_path / "lake",
        {"dt=2026-01-02/p.parquet": crawl_table(["x"] * 9), "dt=2026-01-03/p.parquet": crawl_table(["y"])},
    )
    (tmp_path / "lake/dt=2026-01-01/p.parquet").unlink()
    assert of_index(own.get("/readyz"))["coverage"] == {"new": 1, "changed": 1, "vanished": 1}


@pytest.mark.parametrize(("age", "seen"), [(60.0, 0), (0.0, 1)])
def test_the_source_is_listed_again_only_when_coverage_is_old(
    tmp_path: Path, own: Client, age: float, seen: int
) -> None:
    served = Indexes(Settings(indexes=[str(tmp_path / "shadow")], coverage_seconds=age)).default
    assert served.coverage().new == 0
    write_source(tmp_path / "lake", {"dt=2026-01-03/p.parquet": crawl_table(["y"])})
    assert served.coverage().new == seen


def test_no_index_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound, match="not an index"):
        Indexes(Settings(indexes=[str(tmp_path)]))


def test_threads_may_share_it_while_it_moves(own: Client, tmp_path: Path) -> None:
    """Every answer is whole and of one snapshot, in the midst of reloads."""

    async def both() -> None:
        async def read() -> None:
            for _ in range(30):
                answer = (await own._ask("GET", "/rows/second", b"")).json()
                assert answer["count"] == answer["snapshot"], answer

        reload: Callable[[], bool] = own.served.refresh
        readers = [asyncio.create_task(read()) for _ in range(4)]
        for day in (3, 4, 5):
            await asyncio.to_thread(add_day, tmp_path, f"2026-01-{day:02d}", ["second"])
            assert await asyncio.to_thread(reload)
        await asyncio.gather(*readers)

    asyncio.run(both())
    assert len(rows(own.get("/rows/second"))) == 4
