"""The index files of new source files: written by Spark tasks or, for few rows, in this process."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from gnomon.indexer.build.page_maps import write_maps
from gnomon.indexer.build.scan import is_for_spark, scan
from gnomon.indexer.build.sort_prefix import likely_beginning
from gnomon.indexer.build.write import write_index_files
from gnomon.indexer.spark import SPARK_ERRORS, Stages, is_of_a_file
from gnomon.indexer.tables import Described, with_rows
from gnomon.shadow.errors import UsageError
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.maintenance import index_here
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceRoot
from gnomon.shadow.storage import Storage

NO_SPARK = "a build without Spark does not find"
MOST_ROWS_HERE = 5_000_000  # of a build without Spark: about 200 bytes of memory each
CACHE_BYTES = 16 << 20  # of the metadata of files that are indexed without Spark


def write_segment(
    spark: SparkSession | None,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: list[Described],
    stages: Stages,
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files of some source files, and check them. Returns both, the source files with their numbers of
    rows. Without `spark`, UsageError for more than MOST_ROWS_HERE rows."""
    if not described:
        return [], described
    if spark is not None:
        return _write(spark, storage, root, spec, segment, described, stages)
    with stages.stage("write"):
        return _write_here(storage, root, spec, segment, described)


def _write(
    spark: SparkSession,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: list[Described],
    stages: Stages,
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files of some source files, and check them. Returns both."""
    if spec.page_maps:  # before the scan, which takes longer, since a damaged page header fails the build
        with stages.tasks(spark, "page maps"):
            described = _with_maps(spark, storage, root, spec, segment, described)
    is_about = not all(one.is_counted for one in described)
    with stages.tasks(spark, "write", sum(one.likely_rows for one in described), is_about):
        written, described = _index(spark, storage, root, spec, segment, described)
    return written, described


def _write_here(
    storage: Storage, root: SourceRoot, spec: IndexSpec, segment: str, described: list[Described]
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files of a few rows in this process. UsageError for more rows."""
    if spec.page_maps:
        raise UsageError(f"{NO_SPARK} page maps", storage.root)
    rows = sum(one.likely_rows for one in described)
    if rows > MOST_ROWS_HERE:
        raise UsageError(
            f"{rows:,} rows are to be indexed, at most {MOST_ROWS_HERE:,} without Spark; expected a build with Spark",
            root.name,
        )
    fetcher = Fetcher(root.storage, spec, CACHE_BYTES)
    written, counts = index_here(storage, spec, segment, fetcher, root.location, [one.entry for one in described])
    return written, with_rows(described, dict(enumerate(counts)))


def _index(
    spark: SparkSession,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: Sequence[Described],
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files. Returns them, and the source files with their numbers of rows."""
    empty = [one for one in described if one.is_counted and not one.entry.rows]
    others = [one for one in described if not one.is_counted or one.entry.rows]
    if not others:
        return [], list(described)
    if is_for_spark(spark, root.storage.root, spec, others):
        try:
            entries = scan(spark, root.storage.root, spec, others, in_spark=True)
            beginning = likely_beginning(root.storage, spec, others)
            written, _ = write_index_files(entries, storage.root, spec, segment, others, beginning)
            if sum(file.entries for file in written) == sum(one.entry.rows for one in others):
                return written, list(described)
        except SPARK_ERRORS as error:
            if not is_of_a_file(error):
                raise
        # Spark cannot read a file, or silently returns fewer rows of a damaged one. `sources` reads it, or names the
        # damaged file and place. It replaces the written files.
    entries = scan(spark, root.storage.root, spec, others, in_spark=False)
    written, rows = write_index_files(entries, storage.root, spec, segment, others)
    # The order of the file numbers in the sort, so that entries of one key have the order of the segment.
    numbers = {one.entry.path: number for number, one in enumerate(described)}
    return written, sorted([*empty, *with_rows(others, rows)], key=lambda one: numbers[one.entry.path])


def _with_maps(
    spark: SparkSession,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: Sequence[Described],
) -> list[Described]:
    """Write the page maps of the source files that have rows. Returns the source files with them."""
    made = write_maps(spark, root.storage.root, storage.root, spec, segment, [one.entry for one in described])
    return [replace(one, entry=replace(one.entry, page_maps=made.get(one.entry.path))) for one in described]
