"""A driver on a cluster of two executors: separate processes, which share only the disk with it. Run as a program, it
prints its findings as one JSON line; `test_cluster.py` has the expected ones."""

import contextlib
import io
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.__main__ import main
from gnomon.commands.spark import spark_session
from gnomon.indexer import join_with_index, load, load_by_index, read_index, write_btree
from gnomon.indexer.spark.tasks import ExecutorsUnfit, check_executors
from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from tests.java import OPTIONS

MASTER = "local-cluster[2,1,1024]"
ROWS, NIGHT = 600, 300
SHIPS = "spark.gnomon.ship"


def run(work: Path, python: str, variables: dict[str, str], store: str) -> dict[str, Any]:
    """Run all steps, in the order of a table's life."""
    (work / "one.csv").write_text("k,v\n1,2\n")
    settings = {
        "spark.pyspark.python": python,
        "spark.driver.memory": "1g",
        "spark.executor.defaultJavaOptions": " ".join(OPTIONS),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        SHIPS: "false",
        **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
    }
    conf = [f"{name}={value}" for name, value in settings.items()]
    words = [word for setting in conf for word in ("--conf", setting)]
    one = str(work / "one.csv"), str(work / "none"), "--key", "k"
    seen: dict[str, Any] = {"not shipped": _command("build", *one, "--master", MASTER, *words)}
    with spark_session(MASTER, [*conf, f"{SHIPS}=true"]) as spark:
        os.environ.update(variables)  # only of this process: Java and its executors have started already
        seen["places"] = _places(spark)
        seen["no python"] = _without_python(spark)
        seen |= _table(spark, work)
        seen |= _lines(spark, work)
        seen |= _remote(spark, work, store)
    return seen


def _command(*words: str) -> dict[str, Any]:
    """The exit code of a command, the result it printed, and the last line on stderr."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main([*words, "--json"])
    return {"code": code, **json.loads(out.getvalue() or "{}"), "said": said.getvalue().splitlines()[-1:]}


def _places(spark: SparkSession) -> list[dict[str, str]]:
    """For each executor: its folder, and the places of Python and our packages in its tasks."""

    def place(_: Any) -> Any:
        BarrierTaskContext.get().barrier()  # both at the same time, so in two executors
        ours = str(import_module("gnomon").__file__)
        return [{"folder": os.getcwd(), "python": sys.executable, "gnomon": ours}]

    return list(spark.sparkContext.parallelize([0, 1], 2).barrier().mapPartitions(place).collect())


def _without_python(spark: SparkSession) -> str:
    """The error when executors lack the configured Python."""
    context = spark.sparkContext
    there, context.pythonExec = context.pythonExec, "/nowhere/python"
    try:
        check_executors(spark)
    except ExecutorsUnfit as error:
        return str(error)
    finally:
        context.pythonExec = there
    return ""


def _table(spark: SparkSession, work: Path) -> dict[str, Any]:
    """Partitioned Parquet: build, update, load, dedup."""
    lake, index, batch = str(work / "lake"), str(work / "index"), str(work / "batch")
    _rows(spark, 0, ROWS).write.partitionBy("dt").parquet(lake)
    build = ("build", lake, index, "--key", "k", "--buckets", "4", "--page-maps")
    seen = {"first build": _command(*build)}
    _rows(spark, ROWS, ROWS + NIGHT).write.mode("append").partitionBy("dt").parquet(lake)
    seen["nightly build"] = _command(*build)
    before = spark.read.parquet(lake).localCheckpoint()
    keys = _rows(spark, ROWS - 100, ROWS + 100).select("k").distinct()
    seen["load"] = _same(load(spark, index, keys), before.join(keys, "k"))
    pointers = join_with_index(spark, index, keys)
    seen["join"] = _same(pointers.groupBy("dt").count(), before.join(keys, "k").groupBy("dt").count())
    seen["load by index"] = _same(load_by_index(spark, index, pointers), before.join(keys, "k"))
    chosen = F.col("k").isin("page-é-1", "page-é-301")
    seen["query"] = _same(read_index(spark, index, payload=["v"]).where(chosen), before.where(chosen).drop("payload"))
    write_btree(before, str(work / "values"), ["k"], buckets=2)
    seen["values"] = [row["v"] for row in open_index(str(work / "values")).get("page-é-301", ["v"])]
    _rows(spark, ROWS, ROWS + 2 * NIGHT).write.parquet(batch)
    seen["dedup"] = _command("dedup", index, batch)
    new = spark.read.parquet(batch).select("k").distinct().subtract(before.select("k"))
    seen["new keys"] = new.count()
    seen["after dedup"] = _same(
        spark.read.parquet(lake).groupBy("k").count(),
        before.groupBy("k").count().union(new.select("k", F.lit(1).cast("long"))),
    )
    return seen


def _lines(spark: SparkSession, work: Path) -> dict[str, Any]:
    """JSON lines, with a scan in Python tasks."""
    lake, index = str(work / "lines"), str(work / "lines_index")
    _rows(spark, 0, ROWS).drop("dt").write.json(lake)
    keys = _rows(spark, 0, 100).select("k").distinct()
    build = _command("build", lake, index, "--key", "k", "--format", "jsonl", "--schema", "k string, v bigint")
    plain = spark.read.schema("k string, v bigint").json(lake)
    return {"build of lines": build, "load of lines": _same(load(spark, index, keys), plain.join(keys, "k"))}


def _remote(spark: SparkSession, work: Path, store: str) -> dict[str, Any]:
    """A store whose keys executors get only from the session's settings."""
    lake, index = f"{store}/lake", f"{store}/index"
    target = storage_at(lake)
    for path in (work / "lake").rglob("*.parquet"):
        target.put_new(str(path.relative_to(work / "lake")), [path.read_bytes()])
    keys = _rows(spark, 0, 100).select("k").distinct()
    build = _command("build", lake, index, "--key", "k")
    plain = spark.read.parquet(str(work / "lake"))
    return {"build in a store": build, "load from a store": _same(load(spark, index, keys), plain.join(keys, "k"))}


def _rows(spark: SparkSession, first: int, stop: int) -> DataFrame:
    """Rows, two of each key; every tenth key is null."""
    number = F.col("id")
    key = F.when(number % 10 != 0, F.concat(F.lit("page-é-"), F.floor(number / 2)))
    day = F.concat(F.lit("2026-01-0"), number % 3 + 1)
    return spark.range(first, stop, 1, 2).select(
        key.alias("k"), number.alias("v"), F.repeat(key, 5).alias("payload"), day.alias("dt")
    )


def _same(found: DataFrame, expected: DataFrame) -> dict[str, Any]:
    """The number of rows, and whether they are the expected ones."""
    names = expected.columns
    rows, wanted = (sorted(map(str, frame.select(*names).collect())) for frame in (found, expected))
    return {"rows": len(rows), "same": rows == wanted}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])))
