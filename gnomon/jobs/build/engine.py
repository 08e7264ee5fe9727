"""The interface of the engine that scans and writes for a build: Spark's tasks (`gnomon.indexer.build`), or this
process (`gnomon.jobs.local`)."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from gnomon.jobs.files import CatalogTable, Described
from gnomon.jobs.stages import Stages
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, PageMapsEntry, SourceFileEntry, SourceRoot
from gnomon.shadow.storage import FileInfo, Storage
from gnomon.shadow.tables import LakeSource, Table
from gnomon.sources import Options


class Engine(Protocol):
    """The work of a build that reads all files of a source, or all its rows. Each engine writes the same bytes."""

    def read_table(self, source: str) -> CatalogTable | LakeSource:
        """The table `table:db.name` of the catalog. UsageError where there is no catalog."""
        ...

    def folders_table(self, source: str, root: str) -> Table:
        """The table `table:db.name` of the catalog, whose files lie in folders below `root` or elsewhere. UsageError
        where there is no catalog, and for a lake table."""
        ...

    def add_partitions(self, source: str, root: str, folders: Collection[str]) -> None:
        """Register folders below the root of `table:db.name` that are not folders of its partitions yet. UsageError
        where there is no catalog, and where a partition exists in another folder."""
        ...

    def columns_of_text(
        self, root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]
    ) -> list[tuple[int, pa.Schema]]:
        """The columns of text files, inferred from their rows, each with the ordinal of its file
        (`jobs.files.columns_in`)."""
        ...

    def write_page_maps(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        files: Sequence[SourceFileEntry],
        stages: Stages,
    ) -> dict[str, PageMapsEntry]:
        """Write the page maps of source files that have rows. Returns them by path."""
        ...

    def write_index_files(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        described: Sequence[Described],
        stages: Stages,
    ) -> tuple[list[IndexFileEntry], list[Described]]:
        """Write the index files of source files, of which at least one may have rows, and read them back. Returns them,
        and the source files with their numbers of rows. An engine may leave source files out; the build then does not
        cover them."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """A context manager in which errors of Gnomon reach the caller, also those raised in tasks of the engine."""
        ...
