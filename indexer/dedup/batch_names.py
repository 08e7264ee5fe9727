"""The columns of a batch of JSON lines, which only its rows show."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from gnomon.indexer.build import SparkEngine
from gnomon.indexer.dedup.batch_files import BatchFile, open_file, task_shares
from gnomon.indexer.spark import as_raised, hands_errors_over
from gnomon.jobs.build import infer_schema
from gnomon.shadow.metadata import SourceRoot
from gnomon.shadow.storage import source_storage
from gnomon.sources import Options
from gnomon.sources.text import open_jsonl
from gnomon.sources.types import NOT_JSON, RefusedValue, decode_object, one_value, parse_ddl


def columns_in_rows(
    spark: SparkSession,
    root: SourceRoot,
    files: Sequence[BatchFile],
    options: Options,
    known: Mapping[str, DataType | None],
    tasks: int,
) -> pa.Schema:
    """The columns of the rows of JSON lines. If all of them are `known`, they are strings here, and their types come
    from elsewhere. Otherwise, or if records may hold unknown fields, the types are inferred, which takes three times as
    long."""
    with as_raised():
        names = _names(spark, root, files, tasks)
        if names is not None and names <= set(known) and not any(_has_records(known[name]) for name in names):
            return pa.schema([(name, pa.string()) for name in known if name in names])
        infos = [file.info for file in files]
        return parse_ddl(infer_schema(SparkEngine(spark), root, "jsonl", options, infos, None))


def _has_records(kind: DataType | None) -> bool:
    return kind is not None and "struct<" in kind.simpleString()


def _names(spark: SparkSession, root: SourceRoot, files: Sequence[BatchFile], tasks: int) -> set[str] | None:
    """The names of the members of all rows; None where a row is not a JSON object."""
    place, shares = root.storage.root, task_shares(files, tasks)
    opened = [(file.info, file.options) for file in files]

    @hands_errors_over
    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage, names = source_storage(place), set[str | None]()
        for file, split in (piece for batch in batches for i in batch.column(0).to_pylist() for piece in shares[i]):
            info, options = opened[file]
            with open_file(storage, info) as reader:
                source = open_jsonl(reader, options)
                for _, block in source.blocks(reader, *split):
                    try:
                        names.update(*map(_members, block.texts(0, len(block.starts))))
                    except (*NOT_JSON, RefusedValue):
                        names.add(None)
        yield pa.RecordBatch.from_arrays([pa.array(list(names), pa.string())], names=["name"])

    found = spark.range(0, len(shares), 1, len(shares)).mapInArrow(named, "name string").distinct().collect()
    names = {row.name for row in found}
    return None if None in names else names


def _members(text: bytes) -> Mapping[str, object]:
    """The members of a row. Raises one of `NOT_JSON` where it is not an object."""
    try:
        return decode_object(text)
    except NOT_JSON:  # it may hold NaN, or be null
        raw = one_value(text)
        return {} if raw == b"null" else decode_object(raw)
