"""The files of keys that a command is handed beside an index."""

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
NO_SUCH_TEXT = "\0"  # what stands for null in a CSV file: an empty field that is not quoted, and nothing else


def local_path(path: str, what: str) -> str:
    """A path or file URL that must be there."""
    if not path:
        raise SourceNotFound("no such file", "(empty)", expected=what)
    plain = storage_at(path).root
    if not is_local(plain) or not Path(plain).exists():
        raise SourceNotFound("no such file on this machine", path, expected=what)
    return plain


def read_keys(spark: SparkSession, path: str, names: list[str]) -> DataFrame:
    """The key columns of a file; its format by its name's ending, Parquet where that says nothing. Values of CSV (as
    RFC 4180 has it) and JSON lines come as text, for the index's types to read; a damaged line fails the job."""
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
    except SPARK_ERRORS:  # a type that it does not know, which need not be a key's; or damage: ours says where
        return parquet_keys(spark, plain, names)
