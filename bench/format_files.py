"""The same rows of the made-up crawl as one file of each format, as common writers with their defaults write them."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import SparkSession

from bench.lake import PAGE_BYTES, WRITE_BATCH_ROWS
from gnomon.commands import crawl
from gnomon.shadow.storage import is_hidden

SEED = 2026
AVRO_SCHEMA = {
    "type": "record",
    "name": "page",
    "fields": [
        {"name": "url", "type": "string"},
        {"name": "merchant_id", "type": "long"},
        {"name": "crawl_ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "status", "type": "int"},
        {"name": "html", "type": "string"},
        {"name": "dt", "type": "string"},
    ],
}
COLUMNS = {"schema": crawl.SPARK_SCHEMA}
TEXT = "org.apache.hadoop.io.Text"
SEQUENCE_OUTPUT = "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat"
COMPRESS = "mapreduce.output.fileoutputformat.compress"

Write = Callable[[SparkSession, pa.Table, Path], object]


class FormatFile(NamedTuple):
    """How a file is written into a folder, and how it is indexed: the name of its format, its key column, its
    options."""

    name: str
    title: str
    format: str
    write: Write
    key: str = "url"
    options: Mapping[str, str] = {}


def rows_of(rows: int) -> pa.Table:
    """This number of pages of the crawl, all of one day."""
    file = crawl.File(0, 0, rows)
    return pa.Table.from_batches(crawl.file_batches(file, crawl.same_number, SEED), crawl.SCHEMA)


def data_file(folder: Path) -> Path:
    """The file with the rows, without the files that Spark adds."""
    (path,) = (path for path in folder.iterdir() if not is_hidden(path.name))
    return path


def by_spark(format: str, spark: SparkSession, table: pa.Table, folder: Path) -> None:
    staged = folder.with_name(f"{folder.name} staged.parquet")
    pq.write_table(table, staged)
    spark.read.parquet(str(staged)).coalesce(1).write.format(format).save(str(folder))
    staged.unlink()


def parquet_pages(_: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    pages = {"data_page_size": PAGE_BYTES, "write_batch_size": WRITE_BATCH_ROWS, "write_page_index": True}
    pq.write_table(table, folder / "rows.parquet", **pages)


def parquet_defaults(_: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "rows.parquet")


def avro(codec: str, _: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    with (folder / "rows.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(AVRO_SCHEMA), _dicts(table), codec=codec)


def orc_zlib(_: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    orc.write_table(table, str(folder / "rows.orc"), compression="zlib")


def csv(_: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    pa_csv.write_csv(table, folder / "rows.csv")


def json_lines(_: SparkSession, table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    with (folder / "rows.jsonl").open("w") as file:
        file.writelines(f"{line}\n" for _, line in _documents(table))


def sequence(kind: str | None, spark: SparkSession, table: pa.Table, folder: Path) -> None:
    """Keys and JSON as Text, by Hadoop; `kind` is the unit of compression: RECORD, BLOCK or None."""
    conf = {COMPRESS: str(kind is not None).lower()}
    if kind is not None:
        conf |= {f"{COMPRESS}.type": kind, f"{COMPRESS}.codec": "org.apache.hadoop.io.compress.DefaultCodec"}
    pairs = spark.sparkContext.parallelize(_documents(table), 1)
    pairs.saveAsNewAPIHadoopFile(str(folder), SEQUENCE_OUTPUT, TEXT, TEXT, conf=conf)


def _dicts(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()


def _documents(table: pa.Table) -> Iterator[tuple[str, str]]:
    """The URL of each row, and the whole row as JSON."""
    for row in _dicts(table):
        yield row["url"], json.dumps({**row, "crawl_ts": row["crawl_ts"].isoformat()}, ensure_ascii=False)


IN_VALUES = {"value_format": "json", **COLUMNS}
FILES = (
    FormatFile("parquet-spark", "Parquet by Spark", "parquet", partial(by_spark, "parquet")),
    FormatFile("parquet-pages", "Parquet by pyarrow, pages of 1 MB, page index", "parquet", parquet_pages),
    FormatFile("parquet-pyarrow", "Parquet by pyarrow", "parquet", parquet_defaults),
    FormatFile("orc-zlib", "ORC by pyarrow, zlib", "orc", orc_zlib),
    FormatFile("orc-zstd", "ORC by Spark (zstd)", "orc", partial(by_spark, "orc")),
    FormatFile("avro-deflate", "Avro by fastavro, deflate", "avro", partial(avro, "deflate")),
    FormatFile("avro-snappy", "Avro by fastavro, snappy", "avro", partial(avro, "snappy")),
    FormatFile(
        "sequence-block", "SequenceFile by Hadoop, blocks", "sequence", partial(sequence, "BLOCK"), "key", IN_VALUES
    ),
    FormatFile(
        "sequence-record", "SequenceFile by Hadoop, records", "sequence", partial(sequence, "RECORD"), "key", IN_VALUES
    ),
    FormatFile(
        "sequence-plain", "SequenceFile by Hadoop, plain", "sequence", partial(sequence, None), "key", IN_VALUES
    ),
    FormatFile("csv", "CSV by pyarrow", "csv", csv, options=COLUMNS),
    FormatFile("jsonl", "JSON lines", "jsonl", json_lines, options=COLUMNS),
)


def write_file(spark: SparkSession, one: FormatFile, table: pa.Table, folder: Path) -> None:
    """Write the rows in this format. Replaces the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    one.write(spark, table, folder)
