"""The bench of the service under load: latencies count from when requests were due, everyone gives the same rows, and
nothing goes on running."""

import http.client
import json
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from pyspark.sql import SparkSession

from bench import attack as attacking
from bench import services, slow_store
from bench.attack import Load, attack, load_of, quantile, write_targets
from bench.delays import FIRST_BYTE_SECONDS, Delays, ProxiedRequest, like_s3, longest_chain
from bench.serve import FACTOR, Size, choose_keys, memory, prepare, saturation
from bench.server import Server, started
from bench.slow_store import Fetch
from gnomon.commands import crawl

SECOND = 1_000_000_000
TINY = Size(200, (20,), 1, 2, 1)
needs_vegeta = pytest.mark.skipif(
    not (attacking.TOOLS / "vegeta").exists() and shutil.which("go") is None, reason="vegeta is built with Go"
)


def load(rate: float, **change: object) -> Load:
    return Load(rate, rate, 10, 10, {200: 10}, 1, 2, 3, 4, 0.1, 0.2)._replace(**change)


def ask(server: Server, key: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("GET", f"/rows/{quote(key, safe='')}")
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_a_request_that_was_sent_late_waited_from_when_it_was_due() -> None:
    rows = [(0, 0, 200, SECOND // 100), (1, SECOND // 10, 200, SECOND // 100), (2, SECOND, 200, SECOND // 100)]
    found = load_of(rows, 10, 200, 0.5, 0.25)
    assert (found.p50, found.longest) == (10, 810)  # the third was due at 0.2 s
    assert (found.sent, found.right) == (3, 3)
    assert found.achieved == pytest.approx(3 / 1.01)


def test_answers_of_another_status_are_not_right() -> None:
    rows = [(0, 0, 200, 1000), (1, SECOND // 10, 503, 1000)]
    assert load_of(rows, 10, 200, 0, 0).right == 1


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (0.999, 100), (0.0, 1)])
def test_a_quantile_is_a_value_that_was_seen(share: float, value: int) -> None:
    assert quantile(range(1, 101), share) == value


@pytest.mark.parametrize("beyond", [{"p99": 300}, {"achieved": 1}, {"right": 9}])
def test_a_service_is_saturated_at_the_first_load_it_does_not_bear(beyond: dict[str, float]) -> None:
    sustained, last = saturation(lambda rate: load(rate, **(beyond if rate > 100 else {})))
    assert sustained
    assert sustained.requested <= 100 < last.requested == sustained.requested * FACTOR


def test_skewed_keys_come_again_and_absent_ones_are_of_no_page() -> None:
    keys = choose_keys(200, 1000)
    present = set(crawl.page_urls(np.arange(200)).to_pylist())
    assert set(keys.uniform) | set(keys.skewed) <= present
    assert not set(keys.absent) & present
    most = max(map(keys.skewed.count, set(keys.skewed)))
    assert most > 5 * max(map(keys.uniform.count, set(keys.uniform)))
    assert keys == choose_keys(200, 1000)


@pytest.mark.spark
@needs_vegeta
def test_all_give_the_same_rows_and_a_line_for_each_load(spark: SparkSession, tmp_path: Path) -> None:
    contenders = prepare(tmp_path, TINY.pages)
    keys = choose_keys(TINY.pages, 20)
    answers = []
    for one in contenders[:1] + contenders[2:3] + contenders[-2:-1]:
        with one.start() as server:
            answers.append(ask(server, keys.uniform[0]))
            assert ask(server, keys.absent[0])[0] == 404
    parquet, avro, sqlite = answers
    assert parquet == avro == sqlite
    (line,) = memory(contenders[-1], keys, 20, TINY.memory_seconds, tmp_path)
    assert line.count("MB") == 4


@pytest.mark.process
@needs_vegeta
def test_a_load_asks_at_its_rate_and_says_who_used_the_cores(tmp_path: Path) -> None:
    with started([sys.executable, "-m", services.__name__, "hello"]) as server:
        write_targets(tmp_path / "targets", server, ["https://a.example/ü?b=c#d"])
        found = attack(server, tmp_path / "targets", 50, 1)
    assert (found.sent, found.statuses) == (50, {200: 50})
    assert 0 < found.p50 <= found.p99 <= found.p999 == found.longest
    assert found.generator_cpu > 0
    assert [path.name for path in tmp_path.iterdir()] == ["targets"]


@pytest.mark.process
def test_the_proxy_delays_each_answer_once_and_counts_it() -> None:
    hello = [sys.executable, "-m", services.__name__, "hello"]
    with started(hello) as server, Delays(server.host, server.port) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        for _ in range(3):
            begin = time.monotonic()
            connection.request("GET", "/rows/a")
            assert connection.getresponse().read() == b'{"hello":"world"}'
            assert time.monotonic() - begin >= FIRST_BYTE_SECONDS
        connection.close()
        proxy.wait_until_idle()
        assert [one.target for one in proxy.passed] == ["GET /rows/a HTTP/1.1"] * 3
        assert longest_chain(proxy.passed) == 3


def test_the_delays_of_s3_are_those_of_its_answers_and_the_same_in_each_run() -> None:
    one, other = like_s3(), like_s3()
    seconds = sorted(one() for _ in range(20_000))
    assert seconds == sorted(other() for _ in range(20_000))
    found = [quantile(seconds, share) for share in (0.5, 0.99, 0.999)]
    assert found == pytest.approx([0.063, 0.078, 0.118], rel=0.05)


def test_a_row_costs_what_its_requests_cost_and_a_goal_says_what_was_missed() -> None:
    fetches = [Fetch(70.0, 3, 1, 1), Fetch(72.0, 1, 1, 0)]
    one = slow_store.Load("cold, a warm folder", True, True, fetches)
    assert slow_store._priced(one).split(" | ")[5:] == ["1.50", "0.50", "1", "3.10 |"]
    source = slow_store.SOURCES[0]
    assert "reached" in slow_store._s3_goal(source, one)
    for worse in (Fetch(90.0, 1, 1), Fetch(70.0, 2, 2)):
        assert "missed" in slow_store._s3_goal(source, one._replace(fetches=[worse] * 2))


@pytest.mark.parametrize(
    ("spans", "waits"),
    [
        ([], 0),
        ([(0, 1), (0, 1), (0.5, 1.2)], 1),
        ([(0, 1), (1, 2), (2.5, 3)], 3),
        ([(0, 10), (1, 2), (3, 4), (3, 5)], 2),  # the long one overlaps both
        ([(0, 1), (1, None)], 1),  # nobody waited for the answer of the second
    ],
)
def test_only_reads_that_came_after_an_answer_are_one_after_another(
    spans: list[tuple[float, float | None]], waits: int
) -> None:
    assert longest_chain(ProxiedRequest("", *span) for span in spans) == waits
