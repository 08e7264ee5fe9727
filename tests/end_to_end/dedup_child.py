"""A process with one Spark session, or with none (`--local`). It runs the commands of JSON lines, and stops at a step
to be killed there, or to go on later.

It answers in JSON lines, too: the stages as they begin, the step at which it stopped, the result of a command. With
`--attach` its session lives in the JVM of another program, and Spark jobs survive a kill.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gnomon.indexer import append_batches, append_new, build
from gnomon.indexer.spark.session import local_session
from gnomon.jobs import Step
from gnomon.jobs.dedup import delete, upsert
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance.compaction import compact
from gnomon.shadow.storage import LocalStorage, storage_at
from gnomon.shadow.storage.objects import ObjectStorage
from gnomon.shadow.storage.webhdfs import WebHdfsStorage
from gnomon.shadow.tables import delta_append, iceberg_append, iceberg_change

CONF = {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "1g"}
LOAD, BATCH = r"_shadow/loads/\d+\.json$", "_shadow/batches/"
LOG_ENTRY = re.compile(r"_delta_log/\d+\.json")  # what commits a change of a Delta table


class Place(NamedTuple):
    """Before or after a call of the store whose (last) path matches, or before or after a commit of a lake table."""

    call: str
    pattern: str
    after: bool = False


STEPS = {
    "staged": Place("put_new", LOAD),
    "committed": Place("put_new", LOAD, after=True),
    "between the moves": Place("move_new", "^[^_]", after=True),
    "before the deletes": Place("put_new", "^gnomon"),
    "deletes written": Place("put_new", "^gnomon", after=True),
    "before the table's commit": Place("commit", ""),
    "after the table's commit": Place("commit", "", after=True),
    "moved": Place("put_new", r"_shadow/loads/.*\.appended$"),
    "index files written": Place("put_new", "_shadow/segments/"),
    "before the snapshot": Place("put_new", "_shadow/snapshots/"),
    "after the snapshot": Place("put_new", "_shadow/snapshots/", after=True),
    "before the batch's record": Place("put_new", BATCH),
    "after the batch's record": Place("put_new", BATCH, after=True),
    "finished": Place("delete_folder", "_gnomon"),
}


CHANGE_STEPS = {"before the deletes", "deletes written"}  # of commits that delete rows alone
TABLE_STEPS = {
    "before the table's commit",
    "after the table's commit",
    *CHANGE_STEPS,
}  # of Delta and Iceberg tables alone


class Child:
    """Runs commands, and writes to `answers`."""

    def __init__(self, spark: SparkSession | None, answers: int) -> None:
        self.spark, self.answers = spark, answers
        self.stage, self.place, self.left = "", Place("", ""), 0
        for call in {place.call for place in STEPS.values()} - {"commit"}:
            for store in (LocalStorage, ObjectStorage, WebHdfsStorage):
                setattr(store, call, self._watched(getattr(store, call), call))
        for module in (delta_append, iceberg_append, iceberg_change):
            setattr(module, "_commit", self._watched(module._commit, "commit"))  # noqa: B010  mypy: it is a function

    def say(self, **words: object) -> None:
        os.write(self.answers, f"{json.dumps(words)}\n".encode())

    def run(self, command: dict[str, Any]) -> None:
        """Run a command. `stop_at` is a step, and the number of its occurrence."""
        self.stage, self.place, self.left = "", Place("", ""), 0
        if stop_at := command.get("stop_at"):
            self.place, self.left = STEPS[stop_at[0]], stop_at[1]
        try:
            done = getattr(self, command["do"])(*command["with"])
        except Exception as error:  # noqa: BLE001  any error goes to the caller
            self.say(error=f"{type(error).__name__}: {error}"[:2000])
        else:
            self.say(done=done)

    def append(
        self, index: str, batch: str, batch_id: str, null_keys: str, columns: dict[str, str | None] | None = None
    ) -> dict[str, object]:
        """`columns` are those of the appended rows, each with the batch's column, or None for nulls."""
        if self.spark is None:
            table = pq.read_table(batch)
            if columns is not None:
                table = _as_source(table, columns)
            return append_new(None, index, table, batch_id, progress=self._progress, null_keys=null_keys).to_json()
        rows = self.spark.read.parquet(batch)
        if columns is not None:
            taken = [F.col(of) if of is not None else F.lit(None).cast("string") for of in columns.values()]
            rows = rows.select(*(one.alias(name) for one, name in zip(taken, columns, strict=True)))
        result = append_new(self.spark, index, rows, batch_id, progress=self._progress, null_keys=null_keys)
        return result.to_json()

    def delete(self, index: str, keys: str, batch_id: str | None) -> dict[str, object]:
        """`keys` is a Parquet file of keys."""
        return delete(None, index, pq.read_table(keys), batch_id).to_json()

    def upsert(
        self, index: str, batch: str, batch_id: str, columns: dict[str, str | None], options: dict[str, Any]
    ) -> dict[str, object]:
        rows = _as_source(pq.read_table(batch), columns)
        return upsert(None, index, rows, batch_id, progress=self._progress, **options).to_json()

    def build(self, source: str, index: str, keys: list[str]) -> int:
        return build(self.spark, source, index, keys, progress=self._progress).snapshot

    def compact(self, index: str) -> str:
        try:
            return str(compact(storage_at(index)))
        except ConcurrentCommit as error:  # it lost the race, which is no fault: nothing was changed
            return str(error)

    def stream(self, files: str, schema: str, checkpoint: str, index: str) -> list[object]:
        """Append the new files, one per micro-batch."""
        assert self.spark is not None
        results: list[object] = []
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(files)
        append = append_batches(index, on_result=lambda result: results.append(result.to_json()))
        query = rows.writeStream.foreachBatch(append).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        return results

    def _progress(self, step: Step) -> None:
        if step.stage != self.stage:
            self.stage = step.stage
            self.say(stage=step.stage)

    def _watched(self, real: Callable[..., object], call: str) -> Callable[..., object]:
        def watched(storage: object, *arguments: Any, **named: Any) -> object:
            path = arguments[1] if call == "move_new" else "" if call == "commit" else arguments[0]
            is_commit = call == "put_new" and LOG_ENTRY.fullmatch(path) is not None
            is_it = ("commit" if is_commit else call) == self.place.call and re.search(self.place.pattern, path)
            if is_it and not self.place.after:
                self._passed()
            result = real(storage, *arguments, **named)
            if is_it and self.place.after:
                self._passed()
            return result

        return watched

    def _passed(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.say(stopped=True)
            if not sys.stdin.readline():  # its parent is gone; with a line, it goes on
                os._exit(1)


def _as_source(table: pa.Table, columns: dict[str, str | None]) -> pa.Table:
    """Rows with the columns of the source: each is a column of the rows, or nulls."""
    nulls = pa.nulls(table.num_rows, pa.string())
    return pa.table({name: nulls if of is None else table[of] for name, of in columns.items()})


def attached() -> SparkSession:
    """A new session in the JVM that the environment names (PYSPARK_GATEWAY_PORT, PYSPARK_GATEWAY_SECRET)."""
    gateway = launch_gateway()
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    session = SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf)).newSession()
    for name, value in CONF.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    return session


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # the output of others is not an answer
    spark = None
    if "--local" not in sys.argv:
        spark = attached() if "--attach" in sys.argv else local_session("local[2]", CONF)
    child = Child(spark, answers)
    child.say(done="started")
    for line in sys.stdin:
        child.run(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
