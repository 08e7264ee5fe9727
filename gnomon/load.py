"""gnomon load: the rows of many keys, with Spark."""

import time
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession

from gnomon.output import megabytes, print_json, say
from gnomon.spark import spark_session
from indexer import load as load_rows
from indexer.load import load_counters
from indexer.tables import exact
from shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def load(
    index: Annotated[str, typer.Argument(help="The index folder.")],
    keys: Annotated[str, typer.Argument(help="Parquet, CSV with a header, or JSON lines with the key columns.")],
    out: Annotated[str, typer.Argument(help="The folder to write Parquet files to; it must not exist.")],
    columns: Annotated[str | None, typer.Option(help="Columns to load, with commas between; default all.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master URL; by default this machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")] = False,
) -> None:
    """Write the source's rows for all keys of KEYS to OUT."""
    if Path(out).exists():
        raise UsageError(f"{out}: it is there already; name a folder that is not")
    begin = time.perf_counter()
    with spark_session(master) as spark:
        counters = load_counters(spark)
        names = columns.split(",") if columns else None
        rows = load_rows(spark, index, read_keys(spark, keys), names, counters=counters)
        rows.write.parquet(out)
        count = spark.read.schema(rows.schema).parquet(out).count()
    result = {
        "rows": count,
        "seconds": round(time.perf_counter() - begin, 3),
        "index_bytes_read": counters.index_bytes.value,
        "source_bytes_read": counters.source_bytes.value,
    }
    if json:
        print_json(result)
    else:
        say(
            f"{count:,} rows in {result['seconds']:.1f} s to {out}; read {megabytes(counters.index_bytes.value)} of "
            f"the index and {megabytes(counters.source_bytes.value)} of the source"
        )


def read_keys(spark: SparkSession, path: str) -> DataFrame:
    """A file or folder of keys; its format by its name's ending, Parquet where that says nothing."""
    if not Path(path).exists():
        raise UsageError(f"{path}: no such file; expected the keys as Parquet, CSV or JSON lines")
    reader, pattern = spark.read, exact(path)
    if path.endswith((".csv", ".tsv")):
        return reader.option("header", "true").option("sep", "\t" if path.endswith(".tsv") else ",").csv(pattern)
    if path.endswith((".json", ".jsonl", ".ndjson")):
        return reader.json(pattern)
    return reader.parquet(pattern)
