"""The columns of files that do not tell them (text): found in their rows, by Spark tasks, one for each file; or here,
one file after the other."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from indexer.files import listed
from shadow.coverage import SourceRoot
from shadow.storage import FileInfo, storage_at
from sources import FORMATS, Options
from sources.ddl import parse_ddl, to_ddl

MOST_TASKS = 10_000


def infer_schema(
    spark: SparkSession, root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo], known: str
) -> str:
    """DDL of the columns known before (empty: none) and those of these files, whose types are widened to hold every
    value. Empty for formats whose files tell their columns, and where the user gave a schema."""
    format = FORMATS[format_name]
    if format.infer is None or format.merge is None or "schema" in options:
        return ""
    infer, place, given = format.infer, root.storage.root, dict(options)

    def inferred(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_at(place)
        for batch in batches:
            for ordinal in batch.column(0).to_pylist():
                with listed(storage, files[ordinal]) as reader:
                    schema = infer(reader, given).serialize().to_pybytes()
                yield pa.RecordBatch.from_pylist([{"file": ordinal, "schema": schema}])

    tasks = spark.range(0, len(files), 1, min(len(files), MOST_TASKS) or 1)
    found = tasks.mapInArrow(inferred, "file bigint, schema binary").collect() if files else []
    texts = dict.fromkeys(bytes(row.schema) for row in sorted(found, key=lambda row: row.file))
    schemas = [pa.ipc.read_schema(pa.py_buffer(text)) for text in texts]  # with what was seen, for the merge
    return to_ddl(format.merge([*([parse_ddl(known)] if known else []), *schemas]))


def infer_here(root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]) -> str:
    """DDL of the columns of these files, of a format whose files do not tell them."""
    format, schemas = FORMATS[format_name], []
    assert format.infer is not None
    assert format.merge is not None
    for info in files:
        with listed(root.storage, info) as reader:
            schemas.append(format.infer(reader, options))
    return to_ddl(format.merge(schemas))
