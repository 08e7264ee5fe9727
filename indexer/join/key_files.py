"""The key columns of a file as a DataFrame. Tasks read them as a load in this process does."""

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType

from gnomon.btree.source_types import is_number_of_units, source_type
from gnomon.indexer.spark import arrow_schema, as_spark, hands_errors_over, key_spark_type, spark_type
from gnomon.jobs.load import KeyFile, NoType, as_returned, key_names, sample_types, typed_keys
from gnomon.shadow import to_json
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.values import python_values

KEYS = "keys"


def keys_of_file(spark: SparkSession, file: KeyFile, spec: IndexSpec) -> DataFrame:
    """The key columns of a file as a load returns them, and again in the types of the index, in the columns
    `key_names`. Types that Spark lacks are text here: a time of day as HH:MM:SS.f. UsageError for a column whose values
    cannot be compared with the index's."""
    shown = sample_types(file.schema, spec, KEYS)
    typed_keys(pa.RecordBatch.from_pylist([], file.schema), spec, KEYS)  # refuses a type before any row is read
    fields = [StructField(f"c{i}", _type(field.type)) for i, field in enumerate(shown)]
    keys = [StructField(name, key_spark_type(key.type)) for name, key in zip(key_names(spec), spec.keys, strict=True)]
    schema = StructType([*fields, *keys])
    target = arrow_schema(schema)

    @hands_errors_over
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in file.batches([piece for batch in batches for piece in batch.column(0).to_pylist()]):
            typed, _ = typed_keys(rows, spec, KEYS)
            given = as_returned(rows, typed, shown, spec)
            columns = zip(given.columns, fields, target, shown.names, strict=False)
            arrays = [_given(array, field, to.type, name, file.root) for array, field, to, name in columns]
            yield pa.RecordBatch.from_arrays(
                [*arrays, *(one.cast(to) for one, to in zip(typed, target.types[len(fields) :], strict=True))],
                schema=target,
            )

    tasks = spark.range(0, len(file.pieces), 1, max(len(file.pieces), 1))
    return tasks.mapInArrow(read, schema).toDF(*shown.names, *key_names(spec))


def _type(kind: pa.DataType) -> DataType:
    """The Spark type of a column; text for numbers of units that Spark lacks."""
    try:
        return StringType() if is_number_of_units(source_type(kind)) else spark_type(kind)
    except NoType:
        return StringType()


def _given(array: pa.Array, field: StructField, target: pa.DataType, name: str, path: str) -> pa.Array:
    if not isinstance(field.dataType, StringType) or pa.types.is_string(array.type) or pa.types.is_null(array.type):
        return as_spark(array, field.dataType, target, name, pa.array(range(len(array))), path)
    return pa.array([_text(value) for value in python_values(array)], pa.string())


def _text(value: object) -> str | None:
    """A value as the text of a key."""
    if value is None or isinstance(value, str):
        return value
    text = to_json(value)
    return str(json.loads(text)) if text.startswith('"') else text
