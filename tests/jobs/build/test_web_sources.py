"""Sources on the web: rows by key from a URL and from a data set of a hub, builds that see what changed."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gnomon
from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new
from gnomon.service.settings import Settings
from gnomon.shadow import StalePointer, open_index
from gnomon.shadow.errors import SourceNotFound, StorageError, UsageError
from tests.service.lake import Client
from tests.stores.web import Asked, Hub, Reply, WebServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_SET = "hf://datasets/owner/name"


def rows(first: int, word: str = "row", count: int = 10) -> bytes:
    """A Parquet file with keys from `first` on."""
    table = pa.table({"k": range(first, first + count), "text": [f"{word} {n}" for n in range(first, first + count)]})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub that asks for a token."""
    hub.token = "TOKEN"
    monkeypatch.setenv("HF_TOKEN", "TOKEN")
    return hub


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_rows_of_a_url_are_read_by_key_and_a_change_is_noticed(web: WebServer, tmp_path: Path, etag: str) -> None:
    web.etag = lambda n: {"strong": f'"{n}"', "weak": 'W/"same"', "none": ""}[etag]
    url, index = f"{web.address}/a%20b/f.parquet", tmp_path / "index"
    web.put("/a b/f.parquet", rows(0))
    assert build(None, url, index, ["k"]).rows == 10
    assert open_index(index).fetch(7) == [{"k": 7, "text": "row 7"}]
    assert [row["k"] for row in open_index(index).range(3, 6)] == [3, 4, 5]
    assert not build(None, url, index, ["k"]).committed
    opened = open_index(index)
    assert opened.fetch(7)
    web.put("/a b/f.parquet", rows(0, "raw"))  # of the same size
    for one in (opened, open_index(index)):
        with pytest.raises(StalePointer, match=r"f\.parquet: the file changed since it was indexed"):
            one.fetch(7)
    assert build(None, url, index, ["k"]).changed_files == 1
    assert open_index(index).fetch(7) == [{"k": 7, "text": "raw 7"}]
    web.remove("/a b/f.parquet")
    with pytest.raises(StalePointer, match=r"f\.parquet: the file is gone since it was indexed"):
        open_index(index).fetch(7)
    with pytest.raises(SourceNotFound, match="no such file"):
        build(None, url, index, ["k"])


def test_a_file_that_changes_while_it_is_indexed_is_not_committed(web: WebServer, tmp_path: Path) -> None:
    web.put("/f.parquet", rows(0))

    def changes(_: Asked) -> Reply | None:
        if len(web.asked) == 8:
            web.put("/f.parquet", rows(0, "raw"))
        return None

    web.fault = changes
    with pytest.raises((StalePointer, StorageError), match=r"f\.parquet: the file changed"):
        build(None, f"{web.address}/f.parquet", tmp_path / "index", ["k"])
    assert len(web.asked) >= 8
    assert not list((tmp_path / "index").glob("_shadow/snapshots/*"))


@pytest.mark.spark
def test_spark_builds_and_loads_and_the_service_answers(
    spark: "SparkSession", hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    hub.commit({"data/a.parquet": rows(0), "data/b.parquet": rows(10)})
    index = str(tmp_path / "index")
    assert gnomon.build(spark, DATA_SET, index, ["k"]).rows == 20
    asked = spark.createDataFrame([(3,), (17,), (99,)], "k bigint")
    assert sorted(gnomon.load(spark, index, asked).collect()) == [(3, "row 3"), (17, "row 17")]
    client = Client(Settings(indexes=[index]))
    assert client.get("/rows/17").json()["rows"] == [{"k": 17, "text": "row 17"}]


def test_an_index_is_not_written_to_the_web(web: WebServer, hub: Hub, tmp_path: Path) -> None:
    web.put("/f.parquet", rows(0))
    hub.commit({"f.parquet": rows(0)})
    for index in (f"{web.address}/index", f"{DATA_SET}/index"):
        with pytest.raises(StorageError, match="files there are only read"):
            build(None, f"{web.address}/f.parquet", index, ["k"])
        with pytest.raises(StorageError, match="files there are only read"):
            open_index(index)


def test_a_data_set_is_read_at_the_commit_that_was_indexed(hub: Hub, tmp_path: Path) -> None:
    index = tmp_path / "index"
    files = {"README.md": b"read me", "data/a.parquet": rows(0), "data/b.parquet": rows(10)}
    hub.commit(files)
    assert build(None, DATA_SET, index, ["k"]).rows == 20
    assert not build(None, DATA_SET, index, ["k"]).committed
    hub.commit({**files, "README.md": b"a new word"})
    assert not build(None, DATA_SET, index, ["k"]).committed
    hub.commit({"README.md": b"read me", "data/b.parquet": rows(10, "raw"), "data/c.parquet": rows(20)})
    before = open_index(index)
    assert before.fetch(7) == [{"k": 7, "text": "row 7"}]
    assert before.fetch(17) == [{"k": 17, "text": "row 17"}]
    result = build(None, DATA_SET, index, ["k"], accept_vanished=True)
    assert (result.new_files, result.changed_files, result.vanished_files) == (1, 1, 1)
    after = open_index(index)
    assert [after.fetch(key) for key in (7, 17, 27)] == [
        [],
        [{"k": 17, "text": "raw 17"}],
        [{"k": 27, "text": "row 27"}],
    ]
    assert before.fetch(17) == [{"k": 17, "text": "row 17"}]  # of the snapshot that it opened


def test_a_build_goes_on_while_the_data_set_changes_and_keeps_to_its_commit(hub: Hub, tmp_path: Path) -> None:
    hub.commit({"a.parquet": rows(0), "b.parquet": rows(10)})

    def moves(asked: Asked) -> None:
        if "/resolve/" in asked.path and len(hub.commits) == 1:
            hub.commit({"a.parquet": rows(0, "raw"), "c.parquet": rows(20)})

    hub.fault = moves  # type: ignore[assignment]
    assert build(None, DATA_SET, tmp_path / "index", ["k"]).rows == 20
    assert len(hub.commits) == 2
    assert open_index(tmp_path / "index").fetch(7) == [{"k": 7, "text": "row 7"}]
    assert build(None, DATA_SET, tmp_path / "index", ["k"], accept_vanished=True).changed_files == 1
    assert open_index(tmp_path / "index").fetch(7) == [{"k": 7, "text": "raw 7"}]


def test_a_folder_a_file_and_a_revision_of_a_data_set_are_sources(hub: Hub, tmp_path: Path) -> None:
    hub.commit({"train/dt=1/a.parquet": rows(0), "test/b.parquet": rows(10), "more.csv": b"k,text\n5,five\n"})
    hub.commit({"a.parquet": rows(30)}, branch="other")
    build(None, f"{DATA_SET}/train", tmp_path / "train", ["k"])
    assert open_index(tmp_path / "train").fetch(7) == [{"k": 7, "text": "row 7", "dt": "1"}]
    build(None, f"{DATA_SET}/test/b.parquet", tmp_path / "test", ["k"])
    assert open_index(tmp_path / "test").fetch(17) == [{"k": 17, "text": "row 17"}]
    build(None, f"{DATA_SET}/more.csv", tmp_path / "more", ["k"], format="csv", options={"header": "true"})
    assert open_index(tmp_path / "more").fetch("5") == [{"k": "5", "text": "five"}]
    build(None, f"{DATA_SET}@other", tmp_path / "other", ["k"])
    assert open_index(tmp_path / "other").fetch(37) == [{"k": 37, "text": "row 37"}]
    for nowhere in ("nowhere", "train/nowhere.parquet"):
        with pytest.raises(SourceNotFound, match="no such file or folder"):
            build(None, f"{DATA_SET}/{nowhere}", tmp_path / "none", ["k"])


def test_the_table_in_a_data_set_is_refused_as_elsewhere(hub: Hub, tmp_path: Path) -> None:
    hub.commit({"a.parquet": rows(0), "metadata/v1.metadata.json": b"{}"})
    with pytest.raises(UsageError, match="these files belong to an Iceberg table"):
        build(None, DATA_SET, tmp_path / "index", ["k"])


def test_the_token_is_in_no_file_of_the_index(hub: Hub, tmp_path: Path) -> None:
    hub.commit({"a.parquet": rows(0)})
    build(None, DATA_SET, tmp_path / "index", ["k"], page_maps=True)
    contents = [path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert contents
    assert not any(b"TOKEN" in data or b"SECRET" in data for data in contents)


def test_an_append_to_a_data_set_is_refused_and_the_index_stays(hub: Hub, tmp_path: Path) -> None:
    index = tmp_path / "index"
    hub.commit({"a.parquet": rows(0)})
    build(None, DATA_SET, index, ["k"])
    batch = pq.read_table(io.BytesIO(rows(50)))
    for _ in range(2):
        with pytest.raises(StorageError, match=rf"{DATA_SET}: files there are only read"):
            append_new(None, index, batch, "batch")
    assert open_index(index).fetch(55) == []
    assert open_index(index).fetch(7) == [{"k": 7, "text": "row 7"}]
    assert not build(None, DATA_SET, index, ["k"]).committed
