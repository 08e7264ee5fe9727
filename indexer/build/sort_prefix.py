"""A fast sort of texts with a common prefix. Spark's sort keeps eight bytes of the first sort column for each row, and
compares whole rows where these are equal, which they are for URLs."""

from collections.abc import Sequence
from itertools import takewhile

from pyspark.sql import Column
from pyspark.sql import functions as F

from gnomon.jobs.files import Described, listed
from gnomon.shadow.errors import SourceError
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import Readable
from gnomon.shadow.values import python_values
from gnomon.sources import open_source

HEAD = "__gnomon_head"
HEAD_BYTES = 8
LARGEST = b"\xff" * (HEAD_BYTES + 1)  # greater than any head
SAMPLED_FILES = 8
WORTH_ROWS = 500_000  # a build of more rows reads some keys beforehand


def likely_beginning(root: Readable, spec: IndexSpec, described: Sequence[Described]) -> str:
    """The common prefix of the first key column in some rows of Parquet files; empty where it is not text, or rows are
    few. It is a guess, on which only speed depends."""
    key, files = spec.stored_keys[0], [one for one in described if one.is_counted and one.entry.rows]
    if key.type != "string" or sum(one.entry.rows for one in files) < WORTH_ROWS:
        return ""
    texts: list[str] = []
    for one in files[:: -(-len(files) // SAMPLED_FILES)]:
        if key.name not in one.schema.names:
            continue
        places = [(row, 0) for row in sorted({0, one.entry.rows // 2, one.entry.rows - 1})]
        try:
            with listed(root, one.entry.info) as reader:
                rows = open_source(reader, spec.format, spec.read_options).fetch(reader, places, [key.name])
        except SourceError:  # the scan reports it
            return ""
        texts += [value for value in python_values(rows.column(0)) if isinstance(value, str)]
    return shared_beginning(texts) if len(texts) > 1 else ""


def shared_beginning(texts: Sequence[str]) -> str:
    """The longest common prefix of the texts."""
    least, most = min(texts), max(texts)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False)))
    return least[:same]


def head_of(text: Column, beginning: str) -> Column:
    """Bytes whose order agrees with the order of the texts: equal or ascending where the texts ascend. For texts with
    the prefix `beginning` they are the bytes after it."""
    data = text.cast("binary")
    behind = F.substring(data, len(beginning.encode()) + 1, HEAD_BYTES)
    head = F.when(text.isNull(), F.lit(None)).when(text.startswith(beginning), behind)
    return head.when(text < beginning, F.lit(b"")).otherwise(F.lit(LARGEST))
