"""What an answer cost, as it says with `explain=true`."""

from typing import Any

from service.columns import visible
from service.questions import Question
from shadow.lookup import Wanted, buckets_of_keys
from shadow.partitions import shown_part


def explanation(question: Question, key: Wanted | None = None) -> dict[str, Any]:
    """Of a single key its bucket, what index and source cost, and each step in the order of its begin; of a batch the
    sums alone."""
    stats = question.stats
    index, source = stats.index, stats.source
    sums = {
        "index": {
            "nodes": index.nodes,
            "reads": index.reads,
            "bytes": index.bytes,
            "filter_checks": index.filter_checks,
            "filter_bytes": index.filter_bytes,
            "microseconds": stats.lookup_us,
        },
        "source": {
            "files": stats.source_files,
            "reads": source.reads,
            "bytes": source.bytes,
            "page_map_reads": source.page_maps.reads,
            "page_map_bytes": source.page_maps.bytes,
            "microseconds": stats.fetch_us,
        },
    }
    if key is None:
        return sums
    [bucket] = buckets_of_keys([key.stored], question.spec)
    return {"bucket": bucket, **sums, "steps": _steps(question)}


def _steps(question: Question) -> list[dict[str, Any]]:
    """The steps, whose files do not tell the values of partition columns that are not shown."""
    partitions = question.spec.partitions
    hidden = set(partitions) - set(visible(question.place, partitions))
    steps = question.stats.trace.to_json() if question.stats.trace is not None else []
    return [step | {"file": step["file"] and shown_part(step["file"], hidden)} for step in steps]
