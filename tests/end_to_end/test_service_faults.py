"""A service of two workers under a steady load, while its files or its store fail. Each run prints the injected faults,
the number of requests, and the number of failures. The short runs are in every suite, the long ones in `-m nightly`."""

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.service.settings.table import Settings
from gnomon.shadow.metadata.snapshots import snapshot_path
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import storage_at
from tests.service.lake import add_day, crawl_table, make_crawl
from tests.service.load import Load
from tests.service.processes import Service, started, until
from tests.shadow.make_index import index_source, write_source
from tests.stores.faulty import FaultyProxy
from tests.stores.process import Store

CONNECTIONS = 4
TIMEOUT_SECONDS = 2.0
PATHS = ("/rows/second", "/rows/twice", "/rows/no-such-key")
WELL = {200, 404}
SHORT, LONG = 1, 12  # the number of injections of each fault

lengths = pytest.mark.parametrize("times", [SHORT, pytest.param(LONG, marks=pytest.mark.nightly)])


@dataclass
class Place:
    """A lake with its index and its service."""

    folder: Path
    service: Service

    def load(self, *paths: str, **options: Any) -> Load:
        return Load(self.service.port, *(paths or PATHS), connections=CONNECTIONS, **options)

    def readiness(self) -> dict[str, Any]:
        answer = self.service.get("/readyz")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["indexes"]["shadow"]
        return found

    def serves(self, number: int) -> bool:
        """Whether every worker answers from this snapshot. Any worker may accept a connection."""
        return all(self.readiness()["snapshot"] == number for _ in range(20))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    settings = replace(make_crawl(tmp_path), port=0, workers=2, refresh_seconds=0.1, access_log=False)
    with started(settings) as service:
        yield Place(tmp_path, service)


def days() -> Iterator[str]:
    return (f"2026-{month:02d}-{day:02d}" for month in range(2, 13) for day in range(1, 29))


def say(what: str, load: Load) -> None:
    print(f"\n{what}: {load.summary()}")


def check_503(load: Load) -> None:
    """Check that each failure is a problem with Retry-After."""
    for answer in load.answers:
        if answer.status not in WELL:
            assert answer.status == 503, answer.body
            assert answer.retry_after == "5"
            assert json.loads(answer.body)["status"] == 503


def well_again(place: Place) -> None:
    until(lambda: {place.service.get(path).status_code for path in PATHS for _ in range(4)} == WELL)


@pytest.mark.process
@lengths
def test_a_service_outlasts_what_it_stands_on(place: Place, times: int) -> None:
    """All faults hit one service, one after the other. It is healthy after each."""
    new_days = days()
    snapshots_come(place, new_days, times)
    a_bad_snapshot_comes(place, new_days, min(times, 4))
    folders_go_and_come_back(place, "shadow", times)
    folders_go_and_come_back(place, "lake", times)
    workers_are_killed(place, times)
    code, _, errors = place.service.end()
    assert code == 0
    assert "Traceback" not in errors


def snapshots_come(place: Place, new_days: Iterator[str], times: int) -> None:
    """A snapshot comes every second at a steady load. Each adds a row of the key, and no request fails."""
    number = place.readiness()["snapshot"]
    with place.load() as load:
        for day in itertools.islice(new_days, 3 * times):
            begin = time.monotonic()
            number = add_day(place.folder, day, ["second"])
            threading.Event().wait(max(0.0, begin + 1 - time.monotonic()))
        until(lambda: place.serves(number))
    say(f"{3 * times} new snapshots", load)
    assert (load.failed, set(load.statuses)) == ([], WELL)
    for answer in load.answers:
        content = json.loads(answer.body)
        if content.get("key") == {"url": "second"}:
            assert content["count"] == content["snapshot"] == len(content["rows"]), "every answer is of one snapshot"


def a_bad_snapshot_comes(place: Place, new_days: Iterator[str], times: int) -> None:
    for _ in range(times):
        before = place.readiness()["snapshot"]
        path = place.folder / "shadow" / snapshot_path(before + 1)
        with place.load() as load:
            path.write_bytes(b"{" * 1000)
            until(lambda: all(place.readiness()["refused"] for _ in range(20)))
            assert place.serves(before)
            path.unlink()
            number = add_day(place.folder, next(new_days), ["second"])
            until(lambda number=number: place.serves(number))
            assert place.readiness()["refused"] is None
        assert (load.failed, set(load.statuses)) == ([], WELL)
        say("a bad snapshot", load)


def folders_go_and_come_back(place: Place, name: str, times: int) -> None:
    """While a folder is missing, rows are 503 or come from memory. All are answered when it is back."""
    for _ in range(times):
        with place.load() as load:
            (place.folder / name).rename(place.folder / "away")
            made = load.requests
            until(lambda load=load, made=made: load.requests > made + 20)
            assert place.service.get("/healthz").status_code == 200
            assert place.readiness()["open"]
            (place.folder / "away").rename(place.folder / name)
            well_again(place)
        check_503(load)
        assert load.failed == []
        say(f"{name} away and back", load)


def workers_are_killed(place: Place, times: int) -> None:
    """A killed worker loses only the requests of its own connections."""
    draw, kills = random.Random(1), 2 * times
    with place.load() as load:
        for _ in range(kills):
            workers = place.service.workers()
            os.kill(draw.choice(sorted(workers)), signal.SIGKILL)
            made = load.requests
            until(lambda made=made: load.requests > made + 200)
            until(lambda: len(place.service.workers()) == 2)
    say(f"{kills} workers killed", load)
    assert set(load.statuses) == WELL
    assert len(load.failed) <= kills * CONNECTIONS
    well_again(place)


@pytest.fixture
def far(s3: Store, s3_root: str) -> Iterator[tuple[Service, FaultyProxy]]:
    """A service of an index and a source in a store, behind a proxy."""
    source = source_root_of(f"{s3_root}/lake")
    index_source(source_root(source), storage_at(f"{s3_root}/shadow"), ["url"])
    port = int(s3.variables["AWS_ENDPOINT_URL"].rpartition(":")[2])
    settings = Settings(
        indexes=[f"shadow={s3_root}/shadow"],
        port=0,
        workers=2,
        refresh_seconds=0.2,
        coverage_seconds=1.0,
        timeout_seconds=TIMEOUT_SECONDS,
        access_log=False,
        cache_bytes=0,  # each request reads from the store
    )
    with FaultyProxy(port) as proxy:
        variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        with started(settings, variables) as service:
            yield service, proxy


def source_root_of(place: str) -> str:
    write_source(storage_at(place), {"p.parquet": crawl_table(["second", "twice", "twice"])})
    return place


@lengths
def test_a_store_that_fails_is_503_in_time_and_mends(far: tuple[Service, FaultyProxy], times: int) -> None:
    """The store is slow, silent, cut off, failing, and all of these at random."""
    service, proxy = far
    runs = [
        (("delay",), 1.0),
        (("hang",), 1.0),
        (("reset",), 1.0),
        (("error",), 1.0),
        (("delay", "hang", "reset", "error"), 0.2),
    ]
    for faults, chance in runs:
        with Load(service.port, *PATHS[:2], connections=CONNECTIONS) as load:
            until(lambda: load.statuses[200] > 5)
            proxy.injected.clear()
            proxy.fail(*faults, chance=chance)
            made, end = load.requests, time.monotonic() + times
            until(lambda made=made, end=end: load.requests > made + CONNECTIONS and time.monotonic() > end)
            assert service.get("/readyz").status_code == 200
            assert service.get("/healthz").status_code == 200
            proxy.fail()
            until(lambda: {service.get(path).status_code for path in PATHS[:2] for _ in range(4)} == {200})
        say(f"store fails by {', '.join(faults)} ({dict(proxy.injected)})", load)
        assert sum(proxy.injected.values()) > 0
        assert load.failed == []
        check_503(load)
        assert load.percentile(1.0) < 1000 * 10 * TIMEOUT_SECONDS, "a hang has no end of its own"


@pytest.mark.nightly
def test_snapshots_come_at_half_the_load_that_can_be_borne(place: Place) -> None:
    with place.load("/rows/twice", "/rows/no-such-key", every_seconds=0.0) as most:
        threading.Event().wait(10)
    say("as many requests as can be", most)
    every = 2 * CONNECTIONS / (most.requests / 10)
    number = 0
    with place.load("/rows/twice", "/rows/no-such-key", every_seconds=every) as load:
        for day in itertools.islice(days(), 30):
            begin = time.monotonic()
            number = add_day(place.folder, day, ["second"])
            threading.Event().wait(max(0.0, begin + 1 - time.monotonic()))
        until(lambda: place.serves(number))
    say("half of them, with 30 new snapshots", load)
    assert (load.failed, set(load.statuses)) == ([], WELL)
