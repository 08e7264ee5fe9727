"""The cost of an answer, which the answer contains with `_explain=true`."""

from collections.abc import Sequence
from typing import cast

from gnomon.service.api.query import Question
from gnomon.service.api.shapes import Explain, IndexCost, ReadThrough, SourceCost, Step
from gnomon.service.indexes import visible
from gnomon.shadow.lookup import ParsedKey, buckets_of_keys
from gnomon.shadow.newest_version import read_through
from gnomon.shadow.tables import shown_part


def explanation(question: Question, key: ParsedKey | None = None, files: Sequence[str] = ()) -> Explain:
    """For a single key: its bucket, the costs of index and source, the steps in the order in which they began, and the
    source file of each row. For a batch: only the costs."""
    stats = question.stats
    index, source = stats.index, stats.source
    told = Explain(
        index=IndexCost(
            index.nodes, index.reads, index.bytes, index.filter_checks, index.filter_bytes, stats.lookup_us
        ),
        source=SourceCost(
            stats.source_files,
            source.reads,
            source.bytes,
            source.page_maps.reads,
            source.page_maps.bytes,
            stats.fetch_us,
        ),
    )
    if (added := read_through(question.view)) is not None:
        told.read_through = ReadThrough(len(added.source_files), sum(file.rows for file in added.source_files))
    if key is None:
        return told
    [told.bucket] = buckets_of_keys([key.stored], question.spec)
    partitions = question.spec.partitions
    hidden = set(partitions) - set(visible(question.place, partitions))  # no path may show their values
    steps = stats.trace.to_json() if stats.trace is not None else []
    shown = [step | {"file": shown_part(step["file"], hidden)} if "file" in step else step for step in steps]
    told.steps = cast(list[Step], shown)  # each kind of step has members of its own
    if files:
        told.files = [shown_part(file, hidden) for file in files]
    return told
