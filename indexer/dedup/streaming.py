"""Structured Streaming: appends of a query's micro-batches, each once, even if the query starts again."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from gnomon.indexer.dedup.append import append_new
from gnomon.indexer.spark import ClassicDataFrame
from gnomon.jobs.dedup import DedupResult, Origin
from gnomon.shadow import UsageError
from gnomon.shadow.storage import Place, as_location

QUERY_ID = "sql.streaming.queryId"  # a property of a query's thread; its checkpoint keeps it, unlike the run's id


def append_batches(
    index: Place,
    scope: str = "table",
    order_by: Sequence[str] = (),
    null_keys: str = "dedup",
    on_result: Callable[[DedupResult], None] | None = None,
    origin: Origin | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make the function for `stream.writeStream.foreachBatch`: it appends the new rows of each micro-batch
    (`append_new`).

    The id of a batch is the id of the query, which its checkpoint keeps, and the number of the micro-batch. A
    micro-batch that runs again is recognised; other rows with a known id are a UsageError. So the query must give the
    same rows when it runs again: no rand(), no uuid(). `on_result` is called with the result of each micro-batch.
    `origin` says how to build the index where there is none."""
    place = as_location(index)

    def append_batch(batch: DataFrame, number: int) -> None:
        batch_id = f"{_query_id(place, batch)}-{number}"
        spark = batch.sparkSession
        result = append_new(
            spark, place, batch, batch_id, scope=scope, order_by=order_by, null_keys=null_keys, origin=origin
        )
        if on_result is not None:
            on_result(result)

    return append_batch


def _query_id(index: str, batch: DataFrame) -> str:
    """The id of the query whose micro-batch this is."""
    if not isinstance(batch, ClassicDataFrame):
        raise UsageError(
            "append_batches needs a Spark session of its own JVM, found Spark Connect; run the query in a "
            "program that Spark itself starts (spark-submit); nothing was appended",
            index,
        )
    found = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise UsageError(
            f"this is no micro-batch of a query: the thread has no {QUERY_ID}; hand append_batches to "
            "writeStream.foreachBatch, and leave PYSPARK_PIN_THREAD on; nothing was appended",
            index,
        )
    return str(found)
