"""The jobs on a Spark session, and what they give: the same on each kind of session. As a program it runs them on a
session of Spark Connect, and prints the results as JSON: `python -m tests.indexer.jobs_of_a_session SERVER FOLDER`."""

import hashlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon import GnomonError, open_index
from gnomon.indexer import (
    IndexManager,
    append_batches,
    append_new,
    build,
    filter_new,
    join_with_index,
    load,
    load_by_index,
    read_batch,
    read_index,
    write_btree,
)
from gnomon.indexer.spark import JobCounters, task_errors

job = importlib.import_module("gnomon.jobs.build.job")  # in the package, `build` is the function
SEGMENT = "20260101T000000-000000000000"


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())


def digest(folder: Path) -> dict[str, str]:
    """The index files and Bloom filters, by name."""
    files = [one for one in folder.rglob("*") if one.is_file() and "_shadow/s" not in str(one)]
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(files)}


def written(root: Path) -> Path:
    """A source of two partitions, with null and equal keys."""
    for number in range(4):
        folder = root / "source" / f"dt=2026-01-0{number % 2 + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        keys = [None if i % 17 == 0 else f"k{i * (number + 1) % 90}é" for i in range(120)]
        table = pa.table({"k": keys, "n": range(120), "x": [i / 4 for i in range(120)]})
        pq.write_table(table, folder / f"{number}.parquet")
    return root / "source"


def results(spark: SparkSession, root: Path) -> dict[str, Any]:
    """The result of each job, by name."""
    source, index, hashed = written(root), str(root / "index"), str(root / "hashed")
    segment, job.new_segment_id = job.new_segment_id, lambda: SEGMENT
    try:
        build(spark, str(source), hashed, ["k"], ["n"], buckets=3)
        build(spark, str(source), index, ["k"], ["n"], buckets=3, order="range", flat=True)
    finally:
        job.new_segment_id = segment
    found: dict[str, Any] = {"build": [digest(root / "hashed"), digest(root / "index")]}
    sample = spark.range(200).select(F.concat(F.lit("k"), F.col("id") % 120, F.lit("é")).alias("k"), "id")
    joined = join_with_index(spark, index, sample, "left")
    found["join_with_index"] = rows_of(joined)
    found["load"] = rows_of(load(spark, hashed, sample, ["x", "dt"]))
    found["load_by_index"] = rows_of(load_by_index(spark, hashed, joined.where("data_filename is not null"), ["x"]))
    found["read_index"] = rows_of(read_index(spark, index).where("k > 'k5' and n < 40"))
    batch = spark.range(60).select(
        F.concat(F.lit("k"), F.col("id") + 60, F.lit("é")).alias("k"),
        F.col("id").alias("n"),
        F.lit(0.5).alias("x"),
        F.lit("2026-01-02").alias("dt"),
    )
    found["filter_new"] = rows_of(filter_new(spark, hashed, batch))
    found["counters"] = counted(spark, hashed, sample, batch)
    for name in (hashed, index):
        appended = append_new(spark, name, batch, "first")
        again = append_new(spark, name, batch, "first")
        found[f"append_new {Path(name).name}"] = [appended.appended, appended.already_loaded, again.appended]
    some = pa.table({"k": ["k1é", "new"], "n": [1, 2], "x": [0.5, 1.5], "dt": ["2026-01-01"] * 2})
    pq.write_table(some, root / "b.parquet")
    found["read_batch"] = rows_of(read_batch(spark, str(root / "b.parquet"), hashed))
    found["rows"] = [sorted(map(str, open_index(name).range())) for name in (hashed, index)]
    write_btree(batch.select("k", "n"), str(root / "folder"), ["k"], 2)
    found["write_btree"] = sorted(map(str, open_index(str(root / "folder")).range()))
    found["append_batches"] = streamed(spark, hashed, root)
    found["table"] = of_table(spark, root)
    found["errors"] = [
        _refusal(lambda: build(spark, str(source), index, ["n"])),
        _refusal(lambda: load(spark, hashed, sample, ["nowhere"])),
        _refusal(lambda: load(spark, hashed, _with_changed_file(source, sample)).collect()),
    ]
    return json.loads(json.dumps(found).replace(str(root), "ROOT"))


def streamed(spark: SparkSession, index: str, root: Path) -> list[Any]:
    """Two micro-batches, one of which is half known, appended by a query that runs again afterwards."""
    (root / "in").mkdir()
    for number in range(2):
        rows = [{"k": f"s{i + 5 * number}", "n": i, "x": 1.5, "dt": "2026-01-02"} for i in range(10)]
        file = root / f"in/{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (1 + number, 1 + number))  # the stream takes them in the order of their times
    lines = spark.readStream.schema("k string, n bigint, x double, dt string").option("maxFilesPerTrigger", 1)
    for checkpoint in ("one", "two"):  # the second query's micro-batches are known by their names and rows
        writer = lines.json(str(root / "in")).writeStream.foreachBatch(append_batches(index, stream="s"))
        query = writer.option("checkpointLocation", str(root / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
    return [[row["k"], row["n"]] for row in open_index(index).range(prefix="s")]


def of_table(spark: SparkSession, root: Path) -> list[Any]:
    """An index of a table of the catalog: a partition with a slash in its name, one without a value, one elsewhere."""
    spark.sql("DROP TABLE IF EXISTS jobs_of_a_session")
    spark.sql(
        "CREATE TABLE jobs_of_a_session (k string, n bigint, `d d` string) USING parquet PARTITIONED BY (`d d`) "
        f"LOCATION '{root}/table'"
    )
    spark.sql(f"ALTER TABLE jobs_of_a_session ADD PARTITION (`d d`='c') LOCATION '{root}/some %41 where'")
    for value in ("a/b", None, "c"):
        rows = spark.range(10).select(
            F.concat(F.lit(f"{value}"), F.col("id")).alias("k"), F.col("id").alias("n"), F.lit(value).alias("d d")
        )
        rows.write.insertInto("jobs_of_a_session")
    index = str(root / "of table")
    manager = IndexManager.create_new(spark, "jobs_of_a_session", "index_of_session", ["k"], ["n"], location=index)
    manager.append_missing_partitions()
    opened = open_index(index)
    found = [
        sorted(map(str, opened.range())),
        opened.fetch("c1"),
        rows_of(spark.table("index_of_session").where("k = 'None3'").select("k", "n", "d d")),
        [_refusal(lambda name=name: build(spark, f"table:{name}", index, ["k"])) for name in ("nope", "a b", "x.y.z")],
    ]
    spark.sql("DROP TABLE index_of_session")
    spark.sql("DROP TABLE jobs_of_a_session")
    return found


def counted(spark: SparkSession, index: str, sample: DataFrame, batch: DataFrame) -> list[dict[str, int]]:
    """The counts of tasks, without those that depend on the caches of workers."""
    joins, fetches, checks, empty = (JobCounters() for _ in range(4))
    join_with_index(spark, index, sample, counters=joins).count()
    load(spark, index, sample, counters=fetches).select("x").collect()
    filter_new(spark, index, batch, counters=checks).count()
    load(spark, index, sample.limit(0), counters=empty).collect()
    counts = [asdict(one.value) for one in (joins, fetches, checks, empty)]
    return [{name: one[name] for name in ("keys", "matched", "rows", "unreadable")} for one in counts]


def _refusal(call: Callable[[], object]) -> list[str]:
    try:
        with task_errors():
            call()
    except GnomonError as error:
        return [type(error).__name__, str(error).split(";")[0].split(" (")[0]]  # not in Spark's words
    return []


def _with_changed_file(source: Path, sample: DataFrame) -> DataFrame:
    """The sample, after a file of the source was written again."""
    pq.write_table(pa.table({"k": ["k1é"], "n": [1], "x": [1.0]}), source / "dt=2026-01-01/0.parquet")
    return sample


def main(server: str, root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = SparkSession.builder.remote(server).getOrCreate()
    print(json.dumps(results(spark, root)))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
