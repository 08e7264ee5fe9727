"""Ways to load the rows of many keys with Spark: one class each. All are handed the same sample, and give the same
rows: those of the source whose key is in it, with all columns."""

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.rounds import bytes_read
from indexer import build, load
from indexer.load import LoadCounters, load_counters

KEY = "url"
COPY = "gnomon_bench_copy"


class Run(NamedTuple):
    """What a load took: seconds, bytes that went through shuffles, bytes read of source, index or copy; and what it
    gave: rows, and a sum of their hashes."""

    seconds: float
    shuffled: int
    read: int
    rows: int
    checksum: int


class Contender:
    """One way, on one source."""

    name = ""

    def __init__(self, spark: SparkSession, source: Path, beside: Path) -> None:
        self._spark = spark
        self._source = str(source)
        self._beside = beside

    def prepare(self) -> None:
        """Make what is kept beside the source, if anything."""

    def rows(self, sample: DataFrame) -> DataFrame:
        """The rows of the sample's keys."""
        raise NotImplementedError

    def own_reads(self) -> int | None:
        """Bytes that the last load read, by its own count; None where there is none."""
        return None

    def close(self) -> None:
        """Let go of what Spark keeps of it."""

    def run(self, sample: DataFrame, number: int) -> Run:
        """Load, and look at every byte of every row. `number` is another one for each run."""
        context = self._spark.sparkContext
        group = f"{COPY}-{number}"
        context.setJobGroup(group, self.name)
        pid = context._jvm.java.lang.ProcessHandle.current().pid()
        before = bytes_read(pid)[0]
        begin = time.perf_counter()
        rows = self.rows(sample)
        hashed = F.xxhash64(*[F.col(name) for name in sorted(rows.columns)]).cast("decimal(20,0)")
        found = rows.agg(F.count(F.lit(1)), F.sum(hashed)).first()
        seconds = time.perf_counter() - begin
        assert found is not None  # an aggregate without groups has a row
        shuffled, own = _shuffled(self._spark, group), self.own_reads()
        read = max(bytes_read(pid)[0] - before - shuffled, 0) if own is None else own
        return Run(seconds, shuffled, read, found[0], int(found[1] or 0))


class Gnomon(Contender):
    name = "Gnomon load"
    _counters: LoadCounters

    def prepare(self) -> None:
        build(self._spark, self._source, str(self._beside), [KEY])

    def rows(self, sample: DataFrame) -> DataFrame:
        self._counters = load_counters(self._spark)
        return load(self._spark, str(self._beside), sample, counters=self._counters)

    def own_reads(self) -> int:
        counters = self._counters
        return counters.index_bytes.value + counters.map_bytes.value + counters.source_bytes.value


class SortMergeJoin(Contender):
    name = "sort-merge join"

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.read.parquet(self._source).join(sample.hint("merge"), KEY)


class BroadcastJoin(Contender):
    name = "broadcast join"

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.read.parquet(self._source).join(F.broadcast(sample), KEY)


class BucketedCopy(Contender):
    """The source once more, as a table of Spark's in buckets of the key: only the sample is shuffled."""

    name = "bucketed copy"

    def prepare(self) -> None:
        source = self._spark.read.parquet(self._source)
        buckets = 2 * self._spark.sparkContext.defaultParallelism
        writer = source.repartition(buckets, KEY).write.bucketBy(buckets, KEY).sortBy(KEY)
        writer.option("path", str(self._beside)).saveAsTable(COPY)

    def rows(self, sample: DataFrame) -> DataFrame:
        return self._spark.table(COPY).join(sample.hint("merge"), KEY)

    def close(self) -> None:
        self._spark.sql(f"DROP TABLE IF EXISTS {COPY}")


CONTENDERS = (Gnomon, SortMergeJoin, BroadcastJoin, BucketedCopy)


def _shuffled(spark: SparkSession, group: str) -> int:
    """Bytes written to shuffles, by Spark's own count of the stages that ran. (Its count of bytes read leaves most out:
    Parquet files are read by threads that it does not watch.)"""
    context = spark.sparkContext
    jvm = context._jsc.sc()
    jvm.listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), jvm.statusStore()
    shuffled = 0
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    for stage in {stage for job in jobs if job is not None for stage in job.stageIds}:
        with suppress(Py4JJavaError):  # of one that was skipped
            shuffled += store.lastStageAttempt(stage).shuffleWriteBytes()
    return shuffled
