"""Key columns of Parquet files that Spark cannot read, scanned by `sources` in Arrow tasks. Spark reads no column of a
file that has one of an unknown type."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

from gnomon.btree.source_types import source_type
from gnomon.indexer.spark import NoSparkType, as_spark, hands_errors_over, spark_type
from gnomon.indexer.tables import arrow_schema
from gnomon.jobs.files import Described, describe, listed
from gnomon.shadow import to_json
from gnomon.shadow.metadata import source_root
from gnomon.shadow.storage import storage_at
from gnomon.shadow.values import python_values
from gnomon.sources import open_source


def parquet_keys(spark: SparkSession, path: str, names: Sequence[str]) -> DataFrame:
    """The columns with these names of a Parquet file, or of the files of a folder. Columns of types that Spark lacks
    are text in the form of rows, which `with_keys` reads: a UUID in 36 characters, a time of day as HH:MM:SS.f."""
    root = source_root(path)
    described = describe(root, "parquet", {}, False, root.list(), names)
    there = [name for name in names if any(name in one.schema.names for one in described)]
    fields = [StructField(f"c{i}", _type(described, name)) for i, name in enumerate(there)]
    schema, place = StructType(fields), root.storage.root
    target = arrow_schema(schema)
    pieces = [(one.entry.info, split) for one in described for split in one.splits]

    @hands_errors_over
    def scanned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_at(place)
        for info, split in (pieces[i] for batch in batches for i in batch.column(0).to_pylist()):
            with listed(storage, info) as reader:
                source = open_source(reader, "parquet", {})
                known = [name for name in there if name in source.schema.names]
                for batch in source.scan(reader, known, split):
                    found = dict(zip(known, batch.columns, strict=False))  # drops the pointer columns
                    arrays = [
                        _given(found.get(name, pa.nulls(batch.num_rows)), field, kind.type, name, reader.name)
                        for name, field, kind in zip(there, fields, target, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=target)

    tasks = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    return tasks.mapInArrow(scanned, schema).toDF(*there)


def _type(described: Sequence[Described], name: str) -> DataType:
    """The Spark type of a column; text where Spark has no such type, or files differ."""
    kinds = {one.schema.field(name).type for one in described if name in one.schema.names}
    if len(kinds) == 1:
        [kind] = kinds
        try:
            return spark_type(kind) if source_type(kind) is None else StringType()
        except NoSparkType:
            pass
    return StringType()


def _given(array: pa.Array, field: StructField, target: pa.DataType, name: str, path: str) -> pa.Array:
    if not isinstance(field.dataType, StringType) or pa.types.is_string(array.type):
        return as_spark(array, field.dataType, target, name, pa.array(range(len(array))), path)
    return pa.array([_text(value) for value in python_values(array)], pa.string())


def _text(value: object) -> str | None:
    """A value as the text of a key."""
    if value is None or isinstance(value, str):
        return value
    text = to_json(value)
    return str(json.loads(text)) if text.startswith('"') else text
