"""Gnomon beside Dione on the tables that `deploy/make-dione-tables.sh speed` makes: `python -m bench.dione FOLDER`.

FOLDER/speed.json has what Dione's job and readers cost in a running session of Spark. Gnomon indexes the same tables,
and answers the same keys, in this process and by Spark. The table goes to standard output."""

import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import typer
from pyspark.sql import SparkSession

from bench.lake import folder_bytes
from bench.page import RecordOption, Report, digits, head, row
from gnomon import build, load, open_index
from gnomon.commands.output import megabytes
from gnomon.commands.spark import spark_session
from gnomon.shadow.fetch import FetchStats

LIBRARIES = ("gnomon-index", "pyspark", "pyarrow")
FETCHED, WARM_UP, ROUNDS = 200, 50, 3
DAY = "2026-01-01"


class Spent(NamedTuple):
    """Seconds, and seconds of CPU of this process."""

    seconds: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    """The cost of a call."""
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - begin, time.process_time() - cpu)


def lines(folder: Path, spark: SparkSession, told: dict[str, Any]) -> list[str]:
    """The lines of a table of Dione's. ValueError where an answer lacks a row."""
    warehouse = folder / "warehouse" / "dione.db"
    source, index, keys = warehouse / told["table"], folder / "index" / told["table"], told["keys"]

    def anew(engine: SparkSession | None) -> Spent:
        shutil.rmtree(index, ignore_errors=True)
        return spent(lambda: build(engine, source, index, ["k"], buckets=2))

    def loaded(engine: SparkSession | None, given: Any) -> Spent:
        def work() -> None:
            rows = load(engine, index, given, ["v"])
            found = rows.read_all().num_rows if isinstance(rows, pa.RecordBatchReader) else rows.toArrow().num_rows
            if found != len(keys):
                raise ValueError(f"a load of {len(keys)} keys gave {found} rows")

        return min(spent(work) for _ in range(ROUNDS))

    by_spark, alone = min(anew(spark), anew(spark)), anew(None)
    opened = open_index(index)
    where = {"dt": DAY}
    for key in keys[-WARM_UP:]:
        opened.fetch(key, columns=["v"], where=where)
    stats = FetchStats()
    fetched = []
    for key in keys[:FETCHED]:
        rows: list[Any] = []
        fetched.append(spent(lambda k=key, out=rows: out.extend(opened.fetch(k, ["v"], where=where, stats=stats))))  # type: ignore[misc]
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows of {key}")
    table = pa.table({"k": keys})
    frame = spark.createDataFrame([(key,) for key in keys], "k string").cache()
    in_spark = loaded(spark, frame)
    here = loaded(None, table)
    title = f"{told['table']}: {told['rows']:,} rows, {megabytes(folder_bytes(source))}"
    theirs = folder_bytes(warehouse / f"{told['table']}_index")
    ours = folder_bytes(index)
    bytes_read = stats.index.bytes + stats.source.bytes
    return [
        row([f"**{title}**", "", "", ""]),
        row(["index made, s", digits(told["build"][0]), digits(by_spark.seconds), digits(alone.seconds)]),
        row(["the same, s of CPU", digits(told["build"][1]), "", digits(alone.cpu)]),
        row(["index", megabytes(theirs), megabytes(ours), megabytes(ours)]),
        row(["one row by its key, ms", digits(told["fetch_ms"]), "", _ms([one.seconds for one in fetched])]),
        row(
            [
                "the same, ms of CPU",
                digits(told["fetch_cpu_ms"]),
                "",
                digits(sum(one.cpu for one in fetched) * 1000 / len(fetched)),
            ]
        ),
        row(["the same, read", megabytes(told["fetch_bytes"]), "", megabytes(bytes_read // len(fetched))]),
        row(
            [f"rows of {len(keys):,} keys, s", digits(told["load"][0]), digits(in_spark.seconds), digits(here.seconds)]
        ),
    ]


def _ms(seconds: list[float]) -> str:
    return digits(statistics.median(seconds) * 1000)


def main(
    folder: Annotated[Path, typer.Argument(help="The folder that deploy/make-dione-tables.sh speed made.")],
    record: RecordOption = False,
) -> None:
    """Measure Gnomon, and print the table."""
    report = Report("bench.dione", LIBRARIES, {}, "DIONE=... deploy/make-dione-tables.sh speed")
    report.say("\n".join(head(["", "Dione", "Gnomon by Spark", "Gnomon without Spark"])))
    with spark_session("local[2]", []) as spark:
        for told in json.loads((folder / "speed.json").read_text()):
            report.say("\n".join(lines(folder, spark, told)))
    report.record(record)


if __name__ == "__main__":
    typer.run(main)
