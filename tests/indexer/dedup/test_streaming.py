"""Appends of the micro-batches of a query."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from gnomon.indexer import DedupResult, Origin, append_batches, build
from gnomon.shadow import UsageError
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.verify.snapshot import verify
from tests.end_to_end.killable import Kill, Killable
from tests.opened import open_index

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("classic")]

SCHEMA = "k bigint, word string, day string"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """Keys 0..9 in two partitions, indexed; and a folder into which `arrive` puts files."""
    for day in ("mon", "tue"):
        (tmp_path / f"source/day={day}").mkdir(parents=True)
        keys = [k for k in range(10) if day_of(k) == day]
        pq.write_table(pa.table({"k": keys, "word": ["old"] * len(keys)}), tmp_path / f"source/day={day}/p.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["k"], buckets=2)
    (tmp_path / "in").mkdir()
    return tmp_path


def day_of(k: int) -> str:
    return "mon" if k % 2 else "tue"


def arrive(lake: Path, name: str, keys: range, word: str = "new") -> None:
    lines = [json.dumps({"k": k, "word": f"{word} {place}", "day": day_of(k)}) for place, k in enumerate(keys)]
    (lake / f"in/{name}.json").write_text("\n".join(lines))


def run(spark: SparkSession, lake: Path, **options: Any) -> tuple[list[DedupResult], StreamingQuery]:
    """Append the new files since the checkpoint, one per micro-batch."""
    results: list[DedupResult] = []
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(lake / "in"))
    append = append_batches(str(lake / "index"), on_result=results.append, **options)
    started = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(lake / "checkpoint"))
    query = started.trigger(availableNow=True).start()
    query.awaitTermination()
    return results, query


def there(lake: Path) -> list[int]:
    """The keys of the source, after a check that its index has the same."""
    files = (lake / "source").glob("day=*/*.parquet")
    keys = sorted(k for file in files for k in pq.ParquetFile(file).read(["k"]).column(0).to_pylist())
    index = open_index(str(lake / "index"))
    assert index.coverage().is_empty
    assert index.view.snapshot.rows == len(keys)
    assert all(index.contains(k) for k in keys)
    assert verify(storage_at(str(lake / "index"))).faults == []
    return keys


def test_a_query_whose_process_was_killed_goes_on_from_its_checkpoint_and_appends_each_key_once(
    spark: SparkSession, lake: Path
) -> None:
    arrive(lake, "a", range(5, 30))
    child = Killable(lake, "child")  # its Spark dies with it
    stream = [str(lake / name) for name in ("in", "checkpoint", "index")]
    try:
        answer = child.ask("stream", stream[0], SCHEMA, *stream[1:], kill=Kill(step="between the moves"))
    finally:
        child.close()
    assert answer.killed == "between the moves", answer
    arrive(lake, "b", range(20, 40))
    results, query = run(spark, lake)
    assert [result.batch_id for result in results] == [f"{query.id}-0", f"{query.id}-1"]
    assert there(lake) == list(range(40))
    assert [(result.already_loaded, result.appended) for result in results] == [(5, 20), (10, 10)]


def test_a_query_may_begin_without_an_index(spark: SparkSession, lake: Path) -> None:
    shutil.rmtree(lake / "source")
    shutil.rmtree(lake / "index")
    arrive(lake, "a", range(8))
    arrive(lake, "b", range(4, 12))
    results, _ = run(spark, lake, origin=Origin(str(lake / "source"), ["k"], partition_by=["day"]))
    assert [result.appended for result in results] == [8, 4]
    assert there(lake) == list(range(12))


@pytest.mark.parametrize("dies_after", ["_shadow/loads/", "_shadow/batches/"])
def test_so_does_a_query_that_failed(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, dies_after: str
) -> None:
    """It failed after an append was committed, or finished, and before the checkpoint recorded it."""
    real = LocalStorage.put_new

    def put_and_die(storage: LocalStorage, path: str, chunks: list[bytes]) -> None:
        real(storage, path, chunks)
        if path.startswith(dies_after):
            raise RuntimeError("it dies")

    arrive(lake, "a", range(5, 30))
    monkeypatch.setattr(LocalStorage, "put_new", put_and_die)
    with pytest.raises(StreamingQueryException, match="it dies"):
        run(spark, lake)
    monkeypatch.undo()
    results, _ = run(spark, lake)
    assert [result.known_batch for result in results] == [dies_after == "_shadow/batches/"]
    assert there(lake) == list(range(30))


def test_a_known_micro_batch_with_other_rows_is_an_error(spark: SparkSession, lake: Path) -> None:
    arrive(lake, "a", range(5, 30))
    run(spark, lake)
    for name in ("0", ".0.crc"):  # restores an older state of the checkpoint
        (lake / "checkpoint/commits" / name).unlink()
    (results, query), keys = run(spark, lake), there(lake)
    assert [(result.batch_id, result.known_batch, result.appended) for result in results] == [
        (f"{query.id}-0", True, 0)
    ]
    for name in ("0", ".0.crc"):
        (lake / "checkpoint/commits" / name).unlink()
    arrive(lake, "a", range(5, 35))
    with pytest.raises(
        StreamingQueryException, match=f"batch .*{query.id}-0.* was appended by snapshot . with other rows"
    ):
        run(spark, lake)
    assert there(lake) == keys == list(range(30))


def test_of_copies_in_a_micro_batch_the_first_in_the_order_wins(spark: SparkSession, lake: Path) -> None:
    lines = [
        json.dumps({"k": k, "word": word, "day": "mon"}) for k, word in [(50, "b"), (50, "c"), (50, "a"), (None, "")]
    ]
    (lake / "in/a.json").write_text("\n".join(lines))
    (result,), _ = run(spark, lake, order_by=["word desc"], null_keys="reject", scope="partition")
    assert (result.duplicates_in_batch, result.appended) == (2, 1)
    assert open_index(str(lake / "index")).fetch(50)[0]["word"] == "c"


def test_without_a_query_or_with_spark_connect_nothing_is_appended(spark: SparkSession, lake: Path) -> None:
    append = append_batches(str(lake / "index"))
    with pytest.raises(UsageError, match="this is no micro-batch of a query: the thread has no sql"):
        append(spark.createDataFrame([(50, "x", "mon")], SCHEMA), 0)
    remote: Any = SimpleNamespace(sparkSession=object())  # of Spark Connect: its session has no context
    with pytest.raises(UsageError, match="Spark Connect does not tell the id of the query; name it"):
        append(remote, 0)
    assert there(lake) == list(range(10))
