"""service/indexes/served.py: newer snapshots are opened, damaged ones refused, and old ones stay readable."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import obstore
import pyarrow as pa
import pytest

from gnomon.service.application import create_app
from gnomon.service.indexes.served import Indexes, ServedIndex, _backed_off
from gnomon.service.settings.table import Settings
from gnomon.shadow import DamagedMetadata, IndexNotFound
from gnomon.shadow.errors import StorageError
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import storage_at
from tests.service.lake import Client, add_day, crawl_table, rows
from tests.shadow.make_index import index_source, write_source
from tests.stores.process import Store


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


def test_the_newest_snapshot_asked_for_by_number_stays_though_the_index_moves(own: Client, tmp_path: Path) -> None:
    asked = own.served.at(1)
    add_day(tmp_path, "2026-01-03", ["second"])
    assert own.served.refresh()
    assert asked.view.snapshot.number == 1
    assert asked.answer_many(["second"])[0].count == 1
    assert not asked.refresh()
    assert own.served.at(2).answer_many(["second"])[0].count == 2


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


def test_an_app_that_is_started_again_looks_and_answers(tmp_path: Path, own: Client) -> None:
    app = create_app(Settings(indexes=[str(tmp_path / "shadow")], refresh_seconds=0.01))
    served: ServedIndex = app.state.service.indexes.default

    async def follow(number: int) -> None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(add_day, tmp_path, f"2026-01-0{number + 1}", ["third"])
            async with asyncio.timeout(30):
                while served.index.view.snapshot.number != number:
                    await asyncio.sleep(0.01)
            assert b"gnomon_snapshot" in await app.state.metrics.answer()

    for number in (2, 3):
        asyncio.run(follow(number))


def damage(tmp_path: Path, number: int) -> Callable[[], object]:
    """Truncate a snapshot. Returns the function that restores it."""
    path = tmp_path / "shadow" / SNAPSHOT.format(number)
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    return lambda: path.write_bytes(good)


def test_a_bad_new_snapshot_is_refused_and_the_old_one_served_on(
    own: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_day(tmp_path, "2026-01-03", ["third"])
    restore = damage(tmp_path, 2)
    with caplog.at_level(logging.ERROR):
        assert not own.served.refresh()
        assert not own.served.refresh()
    assert len(caplog.records) == 1, "told once"
    assert own.get("/rows/second").json()["snapshot"] == 1
    ready = own.get("/readyz")
    assert (ready.status_code, of_index(ready)["snapshot"]) == (200, 1)
    assert of_index(ready)["refused"].startswith(SNAPSHOT.format(2))
    assert str(tmp_path) not in ready.text
    restore()
    assert own.served.refresh()
    assert of_index(own.get("/readyz"))["refused"] is None


def test_a_fresh_process_serves_the_newest_snapshot_that_is_good(own: Client, tmp_path: Path) -> None:
    for day in (3, 4, 5):
        add_day(tmp_path, f"2026-01-{day:02d}", ["second"])
    damage(tmp_path, 3)
    restore = damage(tmp_path, 4)
    fresh = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    answer = fresh.get("/rows/second").json()
    assert (answer["count"], answer["snapshot"]) == (2, 2)
    ready = fresh.get("/readyz")
    assert (ready.status_code, of_index(ready)["snapshot"]) == (200, 2)
    assert of_index(ready)["refused"].startswith(SNAPSHOT.format(4))
    restore()
    assert fresh.served.refresh()
    assert (of_index(fresh.get("/readyz"))["snapshot"], fresh.served.refused) == (4, None)


def test_an_index_that_is_not_there_is_told_by_the_error_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(IndexNotFound):
        Indexes(Settings(indexes=[str(tmp_path)]))
    assert not caplog.records
    Indexes(Settings(indexes=[str(tmp_path)]), patient=True)
    assert "cannot be opened, it is tried again: IndexNotFound" in caplog.text


def test_an_index_without_a_good_snapshot_is_an_error_at_once(own: Client, tmp_path: Path) -> None:
    damage(tmp_path, 1)
    with pytest.raises(DamagedMetadata):
        Indexes(Settings(indexes=[str(tmp_path / "shadow")]))


def test_an_index_folder_that_is_gone_for_a_while_is_503_and_answers_again_when_it_is_back(
    own: Client, tmp_path: Path
) -> None:
    assert own.get("/rows/second").status_code == 200
    (tmp_path / "shadow").rename(tmp_path / "away")
    gone = own.get("/rows/twice")
    assert (gone.status_code, gone.headers["retry-after"]) == (503, "5")
    assert not own.served.refresh()
    ready = own.get("/readyz")
    assert (ready.status_code, of_index(ready)["snapshot"]) == (200, 1)
    assert "not an index" in of_index(ready)["unreachable"]
    assert own.served.refused is None
    (tmp_path / "away").rename(tmp_path / "shadow")
    assert len(rows(own.get("/rows/twice"))) == 3
    own.served.refresh()
    assert own.served.unreachable is None


def test_a_process_that_ran_before_waits_for_an_index_that_is_not_there(own: Client, tmp_path: Path) -> None:
    (tmp_path / "shadow").rename(tmp_path / "away")
    settings = Settings(indexes=[str(tmp_path / "shadow")], refresh_seconds=0.01)
    app = create_app(settings, patient=True)
    client = Client(settings, app)
    refused = client.get("/rows/second")
    assert (refused.status_code, refused.json()["title"]) == (503, "Index not open")
    assert refused.headers["retry-after"]
    assert str(tmp_path) not in refused.text
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["title"]) == (503, "Not ready")
    assert (of_index(ready)["open"], of_index(ready)["snapshot"]) == (False, None)
    assert client.get("/healthz").status_code == 200

    async def follow() -> None:
        async with app.router.lifespan_context(app):
            (tmp_path / "away").rename(tmp_path / "shadow")
            async with asyncio.timeout(30):
                while not client.served.is_open:
                    await asyncio.sleep(0.01)

    asyncio.run(follow())
    assert len(rows(client.get("/rows/second"))) == 1
    assert client.get("/readyz").status_code == 200


@pytest.mark.slow
def test_storage_that_does_not_answer_keeps_no_service_from_starting(
    monkeypatch: pytest.MonkeyPatch, crawl_settings: Settings
) -> None:
    """The storage of one index hangs; the other index is served."""
    monkeypatch.setenv("GNOMON_WEBHDFS", "http://127.0.0.1:1")
    client = Client(Settings(indexes=[*crawl_settings.indexes, "far=hdfs://far/index"]))
    assert client.get("/readyz").json()["indexes"]["far"]["open"] is False
    assert client.get("/indexes/far/rows/x").status_code == 503
    assert len(rows(client.get("/rows/second"))) == 1


def test_a_stale_pointer_is_mended_by_a_snapshot_committed_since_the_last_look(own: Client, tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": crawl_table(["second", "third"])})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    answer = own.get("/rows/second").json()
    assert (answer["count"], answer["snapshot"]) == (1, 2)


@pytest.mark.parametrize("batch", [False, True])
def test_a_source_that_comes_back_while_a_request_looks_why_it_is_gone_is_read(
    own: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: bool
) -> None:
    look = own.served.moved_from

    def after_it_is_back(number: int) -> bool:
        (tmp_path / "away").rename(tmp_path / "lake")
        return look(number)

    monkeypatch.setattr(own.served, "moved_from", after_it_is_back)
    (tmp_path / "lake").rename(tmp_path / "away")
    if batch:
        assert [one["count"] for one in own.post({"keys": ["second"] * 2}).json()["results"]] == [1, 1]
    else:
        assert len(rows(own.get("/rows/second"))) == 1


def test_a_file_that_stays_changed_or_gone_is_asked_no_more_than_once_again(
    own: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own.served.index, "refresh", lambda: False)
    file = tmp_path / "lake/dt=2026-01-02/p.parquet"
    assert own.served.index.is_as_indexed(str(file))
    os.utime(file, (1, 1))
    assert not own.served.index.is_as_indexed(str(file))
    assert own.get("/rows/second").status_code == 409
    file.unlink()
    assert not own.served.index.is_as_indexed(str(file))
    assert own.get("/rows/second").status_code == 409
    assert not own.served.index.is_as_indexed("/no/file/of/it")


def test_the_name_of_a_folder_given_by_a_relative_path_stays_in_words(
    own: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shadow").rename(tmp_path / "e")
    there = Client(Settings(indexes=["e"]))
    assert (
        there.get("/rows/second?_snapshot=9").json()["detail"]
        == "the index: snapshot 9 is not there (there is 1 alone)"
    )


def test_a_snapshot_asked_for_by_number_is_answered_as_it_was(own: Client, tmp_path: Path) -> None:
    add_day(tmp_path, "2026-01-03", ["second"])
    own.served.refresh()
    now, then = (own.get(f"/rows/second{query}").json() for query in ("", "?_snapshot=1"))
    assert (now["snapshot"], now["count"]) == (2, 2)
    assert (then["snapshot"], then["count"]) == (1, 1)
    assert own.ask("HEAD", "/rows/second?_snapshot=1").status_code == 200
    assert own.post({"keys": ["second"]}, "?_snapshot=1").json()["snapshot"] == 1


def test_only_a_few_old_snapshots_stay_open(tmp_path: Path, own: Client) -> None:
    for day in (3, 4, 5):
        add_day(tmp_path, f"2026-01-{day:02d}", ["more"])
    served = Indexes(Settings(indexes=[str(tmp_path / "shadow")], pinned_snapshots=2)).default
    first = served.at(1)
    assert served.at(1) is first
    served.at(2)
    served.at(3)
    assert served.at(1) is not first
    assert served.at(None) is served.index


def test_a_stale_pointer_is_mended_though_another_thread_found_the_newer_snapshot(own: Client, tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"dt=2026-01-02/p.parquet": crawl_table(["second", "third"])})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["url"])
    assert own.served.refresh()
    assert own.served.moved_from(1)
    assert not own.served.moved_from(2)


def test_a_batch_looks_once_for_a_newer_snapshot_however_many_keys_are_stale(
    own: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(own.served.index, "refresh", lambda: looks.append(1))
    os.utime(tmp_path / "lake/dt=2026-01-02/p.parquet", (1, 1))
    results = own.post({"keys": ["second"] * 5}).json()["results"]
    assert [one["error"]["status"] for one in results] == [409] * 5
    assert len(looks) == 1


def test_readyz_counts_what_is_not_covered(own: Client, tmp_path: Path) -> None:
    assert of_index(own.get("/readyz"))["coverage"] is None, "not listed yet, and no probe lists"
    write_source(
        tmp_path / "lake",
        {"dt=2026-01-02/p.parquet": crawl_table(["x"] * 9), "dt=2026-01-03/p.parquet": crawl_table(["y"])},
    )
    (tmp_path / "lake/dt=2026-01-01/p.parquet").unlink()
    assert own.served.cover()
    coverage = of_index(own.get("/readyz"))["coverage"]
    assert coverage.pop("age_seconds") >= 0
    assert coverage == {"snapshot": 1, "new": 1, "changed": 1, "vanished": 1, "lake_table": None, "newer": None}


def test_a_source_that_is_gone_is_told_and_takes_no_process_out(own: Client, tmp_path: Path) -> None:
    assert own.served.cover()
    (tmp_path / "lake").rename(tmp_path / "away")
    assert not own.served.cover()
    ready = own.get("/readyz")
    assert ready.status_code == 200
    assert of_index(ready)["coverage_error"]
    assert of_index(ready)["coverage"]["vanished"] == 0, "as it was"
    gone = own.get("/rows/second")
    assert (gone.status_code, gone.headers["retry-after"]) == (503, "5"), gone.text
    (tmp_path / "away").rename(tmp_path / "lake")
    assert own.served.cover()
    assert own.served.coverage_error is None
    assert len(rows(own.get("/rows/second"))) == 1


def test_the_running_app_lists_the_source_again_and_again(tmp_path: Path, own: Client) -> None:
    app = create_app(Settings(indexes=[str(tmp_path / "shadow")], refresh_seconds=60, coverage_seconds=0.05))
    served: ServedIndex = app.state.service.indexes.default

    async def follow() -> None:
        async with app.router.lifespan_context(app), asyncio.timeout(30):
            while served.coverage is None:
                await asyncio.sleep(0.01)
            assert served.coverage.new == 0
            await asyncio.to_thread(write_source, tmp_path / "lake", {"dt=2026-01-03/p.parquet": crawl_table(["y"])})
            while served.coverage.new == 0:
                await asyncio.sleep(0.01)

    asyncio.run(follow())


def test_looks_that_hang_do_not_pile_up_and_delay_neither_probes_nor_requests(
    crawl_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look of each kind hangs. No second one starts, and answers come from memory."""
    client = Client(replace(crawl_settings, refresh_seconds=0.01, coverage_seconds=0.01))
    hang, begun = threading.Event(), threading.Semaphore(0)

    def hangs() -> None:
        begun.release()
        assert hang.wait(60)
        raise StorageError("it hung")

    index = client.served.index  # the threads of another test may still look at an index of their own
    monkeypatch.setattr(index, "refresh", hangs)
    monkeypatch.setattr(index, "coverage", hangs)
    client.served.follow()
    try:
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)
        for _ in range(20):
            assert client.get("/readyz").status_code == 200
            assert client.get("/rows/second").status_code == 200
        assert not begun.acquire(blocking=False)
    finally:
        client.served.stop()
        hang.set()


def test_failing_looks_come_ever_more_seldom() -> None:
    def pauses(every: float) -> list[float]:
        return [_backed_off(every, failed, every) for failed in range(12)]

    assert pauses(5.0)[:4] == [5.0, 10.0, 20.0, 30.0]
    assert pauses(0.01)[1:] == sorted(pauses(0.01)[1:])
    assert pauses(0.01)[-1] > 10
    assert set(pauses(90.0)) == {90.0}, "never more often than asked for"


def test_no_index_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound, match="not an index"):
        Indexes(Settings(indexes=[str(tmp_path)]))


def test_threads_may_share_it_while_it_moves(own: Client, tmp_path: Path) -> None:
    """Every answer is complete and from one snapshot, during reloads."""

    async def both() -> None:
        async def read() -> None:
            for _ in range(30):
                answer = (await own._ask("GET", "/rows/second", b"", None, "127.0.0.1")).json()
                assert answer["count"] == answer["snapshot"], answer

        reload: Callable[[], bool] = own.served.refresh
        readers = [asyncio.create_task(read()) for _ in range(4)]
        for day in (3, 4, 5):
            await asyncio.to_thread(add_day, tmp_path, f"2026-01-{day:02d}", ["second"])
            assert await asyncio.to_thread(reload)
        await asyncio.gather(*readers)

    asyncio.run(both())
    assert len(rows(own.get("/rows/second"))) == 4


def test_a_restart_with_a_cache_folder_reads_the_page_of_a_row_alone(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = s3.place(tmp_path, monkeypatch), list[str]()
    table = pa.table({"k": range(100), "text": [f"row {n}" for n in range(100)]})
    write_source(storage_at(f"{place}/lake"), {"f.parquet": table})
    index_source(source_root(f"{place}/lake"), storage_at(f"{place}/shadow"), ["k"])
    settings = Settings(indexes=[f"{place}/shadow"], cache_folder=str(tmp_path / "cache"), cache_folder_bytes=1 << 20)
    real = obstore.get

    def get(store: Any, path: str, **options: Any) -> Any:
        read.append(path.rpartition(".")[2])
        return real(store, path, **options)

    monkeypatch.setattr(obstore, "get", get)
    counts = []
    for _ in range(2):
        served = Indexes(settings).default
        read.clear()
        for index in (served.now(), served.pinned(1)):
            assert index.fetch(7) == [{"k": 7, "text": "row 7"}]
        counts.append(sorted(read))
        served.stop()  # saves what it learned about pages
    assert counts[0].count("avro") == 1  # the pinned one has it from the folder
    assert counts[1] == ["json", "json", "parquet", "parquet"]  # to open the pinned one: spec and snapshot
