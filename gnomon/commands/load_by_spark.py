"""gnomon load, with Spark."""

from collections.abc import Sequence
from pathlib import Path

from gnomon.commands.spark import spark_session
from gnomon.indexer.join import keys_of_file, load_counters, load_keyed, write_files
from gnomon.indexer.spark import spark_stage
from gnomon.jobs import Progress, Stages
from gnomon.jobs.load import KeyFile, LoadCounters, LoadRequest
from gnomon.shadow import Index


def write_rows(
    opened: Index,
    keys: KeyFile,
    request: LoadRequest,
    target: Path,
    session: tuple[str | None, Sequence[str] | None],
    progress: Progress,
) -> tuple[int, LoadCounters]:
    """Write the rows for the keys of a file as Parquet, with Spark. `session` has the master and the settings. Returns
    the number of rows and the counts of the load."""
    with spark_session(*session) as spark:
        counters = load_counters(spark)
        rows = load_keyed(spark, opened, keys_of_file(spark, keys, opened.spec), request, counters)
        with spark_stage(Stages(progress), spark, "fetch"):
            return write_files(rows, target), counters
