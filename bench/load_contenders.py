"""Ways to load the rows of many keys with Spark: one class each. All get the same sample, and give the same rows: those
of the source whose key is in it, with all columns."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import build, load
from gnomon.indexer.spark import JobCounters

KEY = "url"
COPY = "gnomon_bench_copy"
BUCKETS = 32
SHUFFLES, VECTORED = "spark.sql.shuffle.partitions", "parquet.hadoop.vectored.io.enabled"


class Run(NamedTuple):
    """The cost of a load: seconds, bytes through shuffles, bytes read of source, index or copy. And its result: rows,
    and a sum of their hashes."""

    seconds: float
    shuffled: int
    read: int
    rows: int
    checksum: int


class Contender:
    """One way, on one source."""

    name = ""

    def __init__(self, spark: SparkSession, source: Path, extra: Path) -> None:
        self._spark = spark
        self._source = str(source)
        self._extra = extra

    def prepare(self) -> None:
        """Make the extra data of the source, if any."""

    def rows(self, sample: DataFrame) -> DataFrame:
        """The rows of the sample's keys."""
        raise NotImplementedError

    def own_reads(self) -> int | None:
        """Bytes that the last load read by itself; None where Spark counted them."""
        return None

    def close(self) -> None:
        """Release everything that Spark holds for it."""

    def run(self, sample: DataFrame, number: int) -> Run:
        """Load, and read every byte of every row. `number` is different for each run."""
        context = self._spark.sparkContext
        group = f"{COPY}-{number}"
        context.setJobGroup(group, self.name)
        begin = time.perf_counter()
        rows = self.rows(sample)
        hashed = F.xxhash64(*[F.col(name) for name in sorted(rows.columns)]).cast("decimal(20,0)")
        found = rows.agg(F.count(F.lit(1)), F.sum(hashed)).first()
        seconds = time.perf_counter() - begin
        assert found is not None  # an aggregate without groups has a row
        shuffled, read = _bytes_of_group(self._spark, group)
        own = self.own_reads()
        return Run(seconds, shuffled, read if own is None else own, found[0], int(found[1] or 0))


class Gnomon(Contender):
    name = "Gnomon load"
    _counters: JobCounters

    def prepare(self) -> None:
        build(self._spark, self._source, str(self._extra), [KEY])

    def rows(self, sample: DataFrame) -> DataFrame:
        self._counters = JobCounters()
        return load(self._spark, str(self._extra), sample, counters=self._counters)

    def own_reads(self) -> int:
        counts = self._counters.value
        return counts.index_bytes + counts.map_bytes + counts.source_bytes


class SortMergeJoin(Contender):
    name = "sort-merge join"

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.read.parquet(self._source).join(sample.hint("merge"), KEY)


class BroadcastJoin(Contender):
    name = "broadcast join"

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.read.parquet(self._source).join(F.broadcast(sample), KEY)


class BucketedCopy(Contender):
    """A second copy of the source, as a table of Spark in buckets of the key: only the sample is shuffled."""

    name = "bucketed copy"

    def prepare(self) -> None:
        source = self._spark.read.parquet(self._source)
        writer = source.repartition(BUCKETS, KEY).write.bucketBy(BUCKETS, KEY).sortBy(KEY)
        writer.option("path", str(self._extra)).saveAsTable(COPY)

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.table(COPY).join(sample.hint("merge"), KEY)

    def close(self) -> None:
        self._spark.sql(f"DROP TABLE IF EXISTS {COPY}")


CONTENDERS = (Gnomon, SortMergeJoin, BroadcastJoin, BucketedCopy)


@contextmanager
def spark_settings(spark: SparkSession) -> Iterator[None]:
    """Sets as many partitions for every shuffle as the copy has buckets, else Spark may shuffle the copy. Parquet files
    are read by the threads in which Spark counts bytes."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    partitions, vectored = spark.conf.get(SHUFFLES, None), hadoop.get(VECTORED)
    spark.conf.set(SHUFFLES, str(BUCKETS))
    hadoop.set(VECTORED, "false")
    try:
        yield
    finally:
        spark.conf.unset(SHUFFLES) if partitions is None else spark.conf.set(SHUFFLES, partitions)
        hadoop.unset(VECTORED) if vectored is None else hadoop.set(VECTORED, vectored)


def _bytes_of_group(spark: SparkSession, group: str) -> tuple[int, int]:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return bytes_of_jobs(spark, spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def bytes_of_jobs(spark: SparkSession, jobs: Iterable[int]) -> tuple[int, int]:
    """Bytes written to shuffles, and bytes of files read, by Spark's own counts of the stages that ran."""
    context = spark.sparkContext
    jvm = context._jsc.sc()
    jvm.listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), jvm.statusStore()
    shuffled = read = 0
    found = [tracker.getJobInfo(job) for job in jobs]
    for stage in {stage for job in found if job is not None for stage in job.stageIds}:
        with suppress(Py4JJavaError):  # the stage was skipped
            attempt = store.lastStageAttempt(stage)
            shuffled += attempt.shuffleWriteBytes()
            read += attempt.inputBytes()
    return shuffled, read
