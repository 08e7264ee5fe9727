"""service/indexes/served.py and the conditional requests of routes: an answer is kept while it is right."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.service.indexes.served import AnswerCache, KeptAnswer
from gnomon.service.settings.table import Settings
from tests.opened import open_index
from tests.service.lake import TWICE, Client, make_crawl, rows
from tests.shadow.make_index import index_source, write_source

pytestmark = pytest.mark.usefixtures("way")


def hits(client: Client) -> int:
    return client.served.answers.counts.hits


def test_a_key_asked_again_is_answered_without_reads_and_the_same(own: Client) -> None:
    first = own.get("/rows/second")
    reads = own.served.index.cache_counts()
    again = own.get("/rows/second")
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert own.served.index.cache_counts() == reads
    assert hits(own) == 1


def test_each_way_to_ask_has_its_own_answer(own: Client) -> None:
    targets = ["/rows/second", "/rows/second?_columns=url", f"/rows/{TWICE}", f"/rows/{TWICE}?_limit=1"]
    targets += [f"/rows/{TWICE}?_where=dt=2026-01-01", f"/rows/{TWICE}?_where=dt=2026-01-01&_limit=1"]
    answers = [own.get(target).content for target in targets]
    assert len(set(answers)) == len(targets)
    arrow = own.ask("GET", "/rows/second", headers={"accept": "application/vnd.apache.arrow.stream"})
    assert arrow.content not in answers
    assert [own.get(target).content for target in targets] == answers
    assert own.ask("GET", "/rows/second", headers={"accept": arrow.headers["content-type"]}).content == arrow.content
    assert hits(own) == len(targets) + 1
    assert "explain" in own.get("/rows/second?_explain=true").json(), "an answer that explains itself is made"


@pytest.mark.parametrize("how", ["rewritten", "touched", "removed", "same size and time"])
def test_an_answer_is_dropped_when_a_source_file_of_its_rows_changes(tmp_path: Path, how: str) -> None:
    client = Client(make_crawl(tmp_path))
    assert client.get("/rows/second").status_code == 200
    for file in (tmp_path / "lake").rglob("*.parquet"):
        status, content = file.stat(), bytearray(file.read_bytes())
        if how == "removed":
            file.unlink()
        elif how == "touched":
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        else:
            time.sleep(0.02)  # the ctime of some file systems counts in hundredths of a second
            content[-100:-8] = bytes(92)
            file.write_bytes(content)
            if how != "rewritten":
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.ask("GET", "/rows/second").status_code in (409, 503)
    assert client.served.answers.counts.bytes == 0


def test_a_new_snapshot_answers_anew(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": ["a"], "n": [1]})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    assert rows(client.get("/rows/a")) == [{"k": "a", "n": 1}]
    write_source(tmp_path / "lake", {"b.parquet": pa.table({"k": ["a"], "n": [2]})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client.served.refresh()
    assert sorted(row["n"] for row in rows(client.get("/rows/a"))) == [1, 2]
    assert rows(client.get("/rows/a?_snapshot=1")) == [{"k": "a", "n": 1}]


def test_a_client_that_has_the_answer_gets_304(own: Client) -> None:
    first = own.get("/rows/second")
    etag = first.headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        again = own.ask("GET", "/rows/second", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert (again.headers["etag"], again.headers["vary"]) == (etag, "Accept, Accept-Encoding")
        assert "content-length" not in again.headers
    assert own.ask("GET", "/rows/second", headers={"if-none-match": '"other"'}).content == first.content
    assert own.ask("GET", "/rows/no", headers={"if-none-match": "*"}).status_code == 404
    assert own.app.state.service.indexes.memory.held == 0


def test_only_an_answer_of_a_snapshot_by_number_may_be_kept_unasked(own: Client) -> None:
    assert own.get("/rows/second").headers["cache-control"] == "private, no-cache"
    assert own.get("/rows/second?_snapshot=1").headers["cache-control"] == "private, max-age=86400, immutable"
    assert own.get("/rows/no?_snapshot=1").headers["cache-control"] == "no-store"
    assert own.post({"keys": ["second"]}).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("gzip;q=0.5, zstd", "zstd"),
        ("*", "gzip"),
        ("gzip;q=0", ""),
        ("br, identity", ""),
        ("", ""),
        ("gzip;q=no", ""),
    ],
)
def test_a_large_answer_is_compressed_as_the_client_likes_it(tmp_path: Path, accepted: str, coding: str) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": ["a", "b"], "text": ["x" * 5000, "y"]})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    client = Client(Settings(indexes=[str(tmp_path / "shadow")]))
    plain = client.ask("GET", "/rows/a", headers={"accept-encoding": "identity"})
    found = client.ask("GET", "/rows/a", headers={"accept-encoding": accepted})
    assert found.headers.get("content-encoding", "") == coding
    assert found.json() == plain.json()
    assert (found.headers["etag"] == plain.headers["etag"]) == (not coding)
    assert int(found.headers["content-length"]) < 1000 or not coding
    small = client.ask("GET", "/rows/b", headers={"accept-encoding": accepted})
    assert "content-encoding" not in small.headers
    batch = client.ask("POST", "/rows", {"keys": ["a"] * 20}, headers={"accept-encoding": accepted})
    assert batch.headers.get("content-encoding", "") == ("gzip" if coding == "gzip" else "")
    assert [one["rows"] for one in batch.json()["results"]] == [plain.json()["rows"]] * 20


def test_a_compressed_batch_in_pieces_is_one_stream(crawl: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [TWICE, "no", "second"] * 10
    whole = crawl.ask("POST", "/rows", {"keys": keys}, headers={"accept-encoding": "identity"})
    monkeypatch.setattr("gnomon.service.api.answers.FIRST_KEYS", 3)
    monkeypatch.setattr("gnomon.service.api.answers.MOST_KEYS", 4)
    pieces = crawl.ask("POST", "/rows", {"keys": keys}, headers={"accept-encoding": "gzip"})
    assert pieces.headers["content-encoding"] == "gzip"
    assert pieces.json() == whole.json()


def test_an_answer_that_is_large_for_the_cache_is_not_kept(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"k": ["a"]})})
    index_source(tmp_path / "lake", tmp_path / "shadow", ["k"])
    index, cache = open_index(str(tmp_path / "shadow")), AnswerCache(32_000)
    cache.put("large", KeptAnswer(bytes(5000), 1, {}))
    cache.put("small", KeptAnswer(bytes(500), 1, {}))
    assert cache.get("large", index) is None
    assert cache.get("small", index) is not None
