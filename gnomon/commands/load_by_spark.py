"""gnomon load, with Spark."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from gnomon.commands.spark import spark_session
from gnomon.indexer.dedup import check_rows_visible, write_parquet
from gnomon.indexer.join import load, load_counters, parquet_keys
from gnomon.indexer.keys import column, typed_keys
from gnomon.indexer.spark import SPARK_ERRORS, spark_stage
from gnomon.indexer.tables import exact, read_parquet
from gnomon.jobs import Progress, Stages
from gnomon.jobs.load import CSV_ENDINGS, JSON_ENDINGS, LoadCounters, LoadRequest
from gnomon.shadow import UsageError, open_index

NO_SUCH_TEXT = "\0"  # no CSV field has this text, so that only an unquoted empty field is null


def write_rows(
    index: str,
    keys: str,
    names: Sequence[str],
    request: LoadRequest,
    target: Path,
    session: tuple[str | None, Sequence[str] | None],
    progress: Progress,
) -> tuple[int, LoadCounters]:
    """Write the rows for the key columns with these names of a key file as Parquet, with Spark. `session` has the
    master and the settings. Returns the number of rows and the counts of the load."""
    with spark_session(*session) as spark:
        counters = load_counters(spark)
        sample = typed_keys(read_keys(spark, keys, names), open_index(index).spec, "keys")
        asked = (request.columns, request.how, counters, request.null_safe, request.unreadable)
        rows = load(spark, index, sample, *asked)
        with spark_stage(Stages(progress), spark, "fetch"):
            written = write_parquet(rows, str(target))
        count = read_parquet(spark, [str(target)], rows.schema).count()
        check_rows_visible(str(target), written, count)
        return count, counters


def read_keys(spark: SparkSession, plain: str, names: Sequence[str]) -> DataFrame:
    """The key columns of a file. Its format comes from the ending of its name, by default Parquet. Values of CSV (RFC
    4180) and JSON lines are text, which is parsed in the index's types later; a damaged line fails the job."""
    text = StructType([StructField(name, StringType()) for name in names])
    reader = spark.read.option("mode", "FAILFAST")
    if plain.endswith(CSV_ENDINGS):
        reader = reader.options(header="true", quote='"', escape='"', multiLine="true", nullValue=NO_SUCH_TEXT)
        frame = reader.option("sep", "\t" if plain.endswith(".tsv") else ",").csv(exact(plain))
    elif plain.endswith(JSON_ENDINGS):
        frame = reader.schema(text).json(exact(plain))
    else:
        frame = _read_parquet_keys(spark, plain, names)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UsageError(f"the key column {', '.join(missing)} is missing; it has {', '.join(frame.columns)}", plain)
    return frame.select(*[column(name) for name in names])


def _read_parquet_keys(spark: SparkSession, plain: str, names: Sequence[str]) -> DataFrame:
    try:
        return spark.read.parquet(exact(plain))
    except SPARK_ERRORS:  # an unknown type, maybe of another column, or damage, which Gnomon's reader locates
        return parquet_keys(spark, plain, names)
