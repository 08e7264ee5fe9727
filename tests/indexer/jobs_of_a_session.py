"""The jobs on a Spark session, and what they give: the same on each kind of session. As a program it runs them on a
session of Spark Connect, and prints the results as JSON: `python -m tests.indexer.jobs_of_a_session FOLDER`."""

import hashlib
import importlib
import json
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
from gnomon.indexer.spark import JobCounters, as_raised

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
    found["errors"] = [
        _refusal(lambda: build(spark, str(source), index, ["n"])),
        _refusal(lambda: load(spark, hashed, sample, ["nowhere"])),
        _refusal(lambda: load(spark, hashed, _with_changed_file(source, sample)).collect()),
    ]
    return json.loads(json.dumps(found).replace(str(root), "ROOT"))


def counted(spark: SparkSession, index: str, sample: DataFrame, batch: DataFrame) -> list[dict[str, int]]:
    """What tasks count, besides what the workers' caches change."""
    joins, fetches, checks, empty = (JobCounters() for _ in range(4))
    join_with_index(spark, index, sample, counters=joins).count()
    load(spark, index, sample, counters=fetches).select("x").collect()
    filter_new(spark, index, batch, counters=checks).count()
    load(spark, index, sample.limit(0), counters=empty).collect()
    counts = [asdict(one.value) for one in (joins, fetches, checks, empty)]
    return [{name: one[name] for name in ("keys", "matched", "rows", "unreadable")} for one in counts]


def _refusal(call: Callable[[], object]) -> list[str]:
    try:
        with as_raised():
            call()
    except GnomonError as error:
        return [type(error).__name__, str(error).split(";")[0]]
    return []


def _with_changed_file(source: Path, sample: DataFrame) -> DataFrame:
    """The sample, after a file of the source was written again."""
    pq.write_table(pa.table({"k": ["k1é"], "n": [1], "x": [1.0]}), source / "dt=2026-01-01/0.parquet")
    return sample


def main(root: Path) -> None:
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    print(json.dumps(results(spark, root)))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
