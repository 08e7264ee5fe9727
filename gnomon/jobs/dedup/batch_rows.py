"""The rows of a batch, and the engine that checks and writes them: Spark's tasks (`gnomon.indexer.dedup`), or this
process (`gnomon.jobs.dedup.local_rows`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gnomon.jobs.build import Engine
from gnomon.jobs.dedup.check import CheckOptions
from gnomon.jobs.dedup.layout import Layout
from gnomon.jobs.dedup.rejected import RejectedAt
from gnomon.jobs.dedup.staged_files import Staged
from gnomon.jobs.stages import Stages
from gnomon.shadow import Index
from gnomon.shadow.metadata import IndexSpec


@dataclass(frozen=True)
class Staging:
    """The check of a batch, and the place for its new rows: `folder` below the source's root, with file names that
    begin with `name`. `index` is None for a source without an index, whose spec will be `spec`. `rejected` is the place
    for the other rows."""

    index: Index | None
    spec: IndexSpec
    check: CheckOptions
    layout: Layout
    folder: str
    name: str
    rejected: RejectedAt | None


class BatchRows(Protocol):
    """The rows of a batch, which can be read more than once."""

    @property
    def engine(self) -> Engine:
        """The engine of builds."""
        ...

    @property
    def columns(self) -> Mapping[str, str | None]:
        """The columns by name: None for a column whose values have an order (`order_of`), else the name of its type."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        ...

    def check_columns(self, index: Index) -> None:
        """Raise UsageError, with the differences, where its columns are not the source's."""
        ...

    def as_source(self, index: Index | None, spec: IndexSpec) -> pa.Schema:
        """The columns that this batch gives to a source without files; partition columns are text. If the source has
        files, the result is not used. UsageError as in `check_columns`."""
        ...

    def reported(self, index: Index) -> pa.Schema:
        """The columns of a report of rows that were not appended."""
        ...

    def digest(self, partitions: Sequence[str], stages: Stages) -> str:
        """The digest of the rows (`row_digest`), which this call reads."""
        ...

    def stage(self, staging: Staging, stages: Stages) -> Staged:
        """Check the rows, and write the new ones. StageRunAgain where the caller has to call it again."""
        ...

    @property
    def index_bytes_read(self) -> int:
        """The bytes of the index that checks have read."""
        ...
