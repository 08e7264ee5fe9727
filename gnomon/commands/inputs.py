"""The key files of commands."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from gnomon.indexer.join import parquet_keys
from gnomon.indexer.keys import column
from gnomon.indexer.spark import SPARK_ERRORS
from gnomon.indexer.tables import exact
from gnomon.shadow import SourceNotFound, UsageError
from gnomon.shadow.storage import is_local, storage_at

CSV_ENDINGS, JSON_ENDINGS = (".csv", ".tsv"), (".json", ".jsonl", ".ndjson")
NO_SUCH_TEXT = "\0"  # no CSV field has this text, so that only an unquoted empty field is null


def local_path(path: str, what: str) -> str:
    """The path of a local path or file URL. SourceNotFound unless it exists."""
    if not path:
        raise SourceNotFound("no such file", "(empty)", expected=what)
    plain = storage_at(path).root
    if not is_local(plain) or not Path(plain).exists():
        raise SourceNotFound("no such file on this machine", path, expected=what)
    return plain


def read_keys(spark: SparkSession, path: str, names: list[str]) -> DataFrame:
    """The key columns of a file. Its format comes from the ending of its name, by default Parquet. Values of CSV (RFC
    4180) and JSON lines are text, which is parsed in the index's types later; a damaged line fails the job."""
    plain = local_path(path, "the keys as Parquet, CSV or JSON lines")
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
        raise UsageError(f"the key column {', '.join(missing)} is missing; it has {', '.join(frame.columns)}", path)
    return frame.select(*[column(name) for name in names])


def _read_parquet_keys(spark: SparkSession, plain: str, names: list[str]) -> DataFrame:
    try:
        return spark.read.parquet(exact(plain))
    except SPARK_ERRORS:  # an unknown type, maybe of another column, or damage, which our reader locates
        return parquet_keys(spark, plain, names)
