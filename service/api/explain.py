"""The cost of an answer, which the answer contains with `_explain=true`."""

from collections.abc import Sequence
from typing import Any

from gnomon.service.api.query import Question
from gnomon.service.indexes import visible
from gnomon.shadow.lookup import ParsedKey, buckets_of_keys
from gnomon.shadow.newest_version import read_through
from gnomon.shadow.tables import shown_part


def explanation(question: Question, key: ParsedKey | None = None, files: Sequence[str] = ()) -> dict[str, Any]:
    """For a single key: its bucket, the costs of index and source, the steps in the order in which they began, and the
    source file of each row. For a batch: only the costs."""
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
    if (added := read_through(question.view)) is not None:
        sums["read_through"] = {"files": len(added.source_files), "rows": sum(file.rows for file in added.source_files)}
    if key is None:
        return sums
    [bucket] = buckets_of_keys([key.stored], question.spec)
    partitions = question.spec.partitions
    hidden = set(partitions) - set(visible(question.place, partitions))  # no path may show their values
    steps = question.stats.trace.to_json() if question.stats.trace is not None else []
    shown = [step | {"file": shown_part(step["file"], hidden)} if "file" in step else step for step in steps]
    of_rows = {"files": [shown_part(file, hidden) for file in files]} if files else {}
    return {"bucket": bucket, **sums, "steps": shown, **of_rows}
