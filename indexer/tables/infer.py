"""The columns of files that do not declare them (text), inferred from their rows: by Spark tasks, one for each file, or
in this process, one file after the other."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from gnomon.btree.keys import type_of_arrow
from gnomon.indexer.spark import hands_errors_over
from gnomon.indexer.tables.source_files import listed, of_one_format
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import FileInfo, source_storage
from gnomon.sources import FORMATS, Options
from gnomon.sources.types import COMMENT, NOTHING, parse_ddl, to_ddl

MOST_TASKS = 10_000


def infer_schema(
    spark: SparkSession,
    root: SourceRoot,
    format_name: str,
    options: Options,
    files: Sequence[FileInfo],
    spec: IndexSpec | None,
) -> str:
    """DDL of the known columns, if the index has a spec, and the columns of these files, with types widened to hold
    every value. Empty for formats whose files declare their columns, and where the user gave a schema. UsageError names
    the first file that would give an indexed column another type."""
    format = FORMATS[format_name]
    if format.infer is None or format.merge is None or "schema" in options:
        return ""
    infer, place, given = format.infer, root.storage.root, dict(options)

    @hands_errors_over
    def inferred(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = source_storage(place)
        for batch in batches:
            for ordinal in batch.column(0).to_pylist():
                with listed(storage, files[ordinal]) as reader, of_one_format(reader, format_name):
                    schema = infer(reader, given).serialize().to_pybytes()
                yield pa.RecordBatch.from_pylist([{"file": ordinal, "schema": schema}])

    tasks = spark.range(0, len(files), 1, min(len(files), MOST_TASKS) or 1)
    found = tasks.mapInArrow(inferred, "file bigint, schema binary").collect() if files else []
    by_schema: dict[bytes, int] = {}
    for row in sorted(found, key=lambda row: row.file):
        by_schema.setdefault(bytes(row.schema), row.file)
    schemas = [pa.ipc.read_schema(pa.py_buffer(text)) for text in by_schema]  # with the metadata for the merge
    known = [_known(spec)] if spec and spec.schema else []
    merged = format.merge([*known, *schemas])
    if spec is not None and _changed(spec, merged):
        for ordinal, schema in zip(by_schema.values(), schemas, strict=True):
            for changed in _changed(spec, format.merge([*known, schema])):
                raise UsageError(changed, files[ordinal].path)
    return to_ddl(merged)


def _known(spec: IndexSpec) -> pa.Schema:
    """The columns known before. An indexed column with only nulls is a string, and stays one."""
    indexed = {one.name for one in (*spec.stored_keys, *spec.include)}
    return pa.schema(
        [
            field.remove_metadata() if field.name in indexed and field.metadata == {COMMENT: NOTHING} else field
            for field in parse_ddl(spec.schema)
        ]
    )


def _changed(spec: IndexSpec, schema: pa.Schema) -> list[str]:
    """The error texts for indexed columns that have another type in a schema than in the index."""
    columns = [
        (one, schema.field(one.name).type) for one in (*spec.stored_keys, *spec.include) if one.name in schema.names
    ]
    return [
        f"column {one.name} is {found}, elsewhere in the source it is {one.source_type or one.type}"
        for one, found in columns
        if type_of_arrow(found) != one.type
    ]


def infer_here(root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]) -> str:
    """DDL of the columns of these files, for a format whose files do not declare them."""
    format, schemas = FORMATS[format_name], []
    assert format.infer is not None
    assert format.merge is not None
    for info in files:
        with listed(root.storage, info) as reader, of_one_format(reader, format_name):
            schemas.append(format.infer(reader, options))
    return to_ddl(format.merge(schemas))
