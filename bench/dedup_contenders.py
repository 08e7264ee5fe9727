"""Ways to find, and to append, the rows of a batch whose key a table lacks: one class each. All get the same batch, and
give one row for each such key."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.dedup_tasks import IS_OLD, KEY, unseen
from bench.load_contenders import bytes_of_jobs
from bench.processes import Cpu, cpu_of
from bench.rounds import WrongRows
from gnomon.indexer import append_new, build, filter_new
from gnomon.indexer.spark import JobCounters


class Took(NamedTuple):
    """The cost of a run: seconds, seconds of CPU, bytes written to shuffles, and bytes read of an index."""

    seconds: float
    cpu: Cpu
    shuffled: int
    read: int


class Contender:
    """One way, on one table."""

    name = ""
    is_patient = True  # measured even if it takes long

    def __init__(self, spark: SparkSession, source: Path, extra: Path) -> None:
        self._spark = spark
        self._source = str(source)
        self.extra = extra

    def prepare(self) -> None:
        """Make the extra data of the table, if any."""

    def new_rows(self, batch: DataFrame) -> DataFrame:
        """The rows of the batch whose key the table lacks, one for each key."""
        raise NotImplementedError

    def append(self, batch: DataFrame, number: int) -> None:
        """Append these rows to the table. `number` is different for each batch."""
        self.new_rows(batch).write.mode("append").parquet(self._source)

    def read(self) -> int:
        """Bytes that the last run read of an index."""
        return 0

    def _keys(self) -> DataFrame:
        return self._spark.read.parquet(self._source).select(KEY)


class Gnomon(Contender):
    name = "Gnomon"

    def __init__(self, spark: SparkSession, source: Path, extra: Path) -> None:
        super().__init__(spark, source, extra)
        self._counters, self._appended = JobCounters(), 0

    def prepare(self) -> None:
        build(self._spark, self._source, str(self.extra), [KEY])

    def new_rows(self, batch: DataFrame) -> DataFrame:
        self._counters, self._appended = JobCounters(), 0
        return filter_new(self._spark, str(self.extra), batch, counters=self._counters)

    def append(self, batch: DataFrame, number: int) -> None:
        self._appended = append_new(self._spark, str(self.extra), batch, f"bench-{number}").index_bytes_read

    def read(self) -> int:
        return self._appended or self._counters.value.index_bytes


class AntiJoin(Contender):
    name = "anti join"

    def new_rows(self, batch: DataFrame) -> DataFrame:
        return batch.dropDuplicates([KEY]).join(self._keys(), KEY, "left_anti")


class HashSets(Contender):
    """The keys of the table and the rows of the batch go to the same tasks, keys first. Each task puts its keys into a
    set, and returns the rows whose key is not in it yet."""

    name = "hash sets"
    is_patient = False

    def new_rows(self, batch: DataFrame) -> DataFrame:
        old = self._keys().withColumn(IS_OLD, F.lit(True))
        both = old.unionByName(batch.withColumn(IS_OLD, F.lit(False)), allowMissingColumns=True)
        tasks = both.repartition(KEY).sortWithinPartitions(F.desc(IS_OLD))
        return tasks.select(*batch.columns, IS_OLD).mapInArrow(unseen, batch.schema)


CONTENDERS = (Gnomon, AntiJoin, HashSets)


def measured(spark: SparkSession, one: Contender, work: Callable[[], object]) -> Took:
    """The cost of `work`, which a contender does in jobs of Spark."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    first, before, begin = scheduler.numTotalJobs(), cpu_of(spark), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - begin, cpu_of(spark)
    shuffled, _ = bytes_of_jobs(spark, range(first, scheduler.numTotalJobs()))
    return Took(seconds, after - before, shuffled, one.read())


@contextmanager
def removing_new_files(*folders: Path) -> Iterator[None]:
    """Removes all files that appear in the folders during the block. WrongRows where others changed."""
    before = {path: _state(path) for path in _files(folders)}
    try:
        yield
    finally:
        for path in _files(folders):
            if path not in before:
                path.unlink()
    changed = [path for path, state in before.items() if not path.exists() or _state(path) != state]
    if changed:
        raise WrongRows(f"{changed[0]}: a file of the table or the index changed; a run must not change existing files")


def _files(folders: tuple[Path, ...]) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
