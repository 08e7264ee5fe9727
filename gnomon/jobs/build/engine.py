"""The engine that scans and writes for a build: Spark's tasks (`gnomon.indexer.build`), or processes of this machine
(`LocalEngine`), which scan, sort and write within a bound of memory."""

import importlib.util
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol

import pyarrow as pa

from gnomon.jobs.files import (
    CatalogTable,
    Described,
    columns_in,
    exported_maps,
    no_catalog,
    scan_file,
    shares_of,
    with_rows,
)
from gnomon.jobs.stages import Stages, Step
from gnomon.shadow.errors import UsageError
from gnomon.shadow.fetch import page_maps_path, write_page_maps
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, PageMapsEntry, SourceFileEntry, SourceRoot
from gnomon.shadow.storage import FileInfo, Readable, Storage
from gnomon.shadow.tables import LakeSource, Table
from gnomon.shadow.write import MEMORY_BYTES, WORTH_ROWS, Piece, index_pieces, processes_for
from gnomon.sources import Options, Split


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

    def running(self, job: str) -> AbstractContextManager[None]:
        """A block in which a job runs: Spark's UI has its name, and errors of Gnomon reach the caller, also those that
        tasks of the engine raise."""
        ...


FILES = "files"  # the unit of steps


def has_spark() -> bool:
    """Whether Spark's Python package is installed. It is not imported."""
    try:
        return importlib.util.find_spec("pyspark") is not None
    except (ModuleNotFoundError, ValueError):  # an import finder refuses the name
        return False


WORTH_BYTES = 256 << 20  # a build that reads more of its source starts processes, as one of many rows does
LEAST_MEMORY = 256 << 20  # bytes of memory for each process, where they are many


class LocalEngine:
    """Builds on this machine. `memory` is the number of bytes that entries may take; entries beyond go to temporary
    files. UsageError for a build of more than `most_rows` rows. `processes` is the number of processes that scan and
    write. By default this process builds small indexes, and one process for each core builds the others."""

    def __init__(self, memory: int = MEMORY_BYTES, most_rows: int | None = None, processes: int | None = None) -> None:
        self.memory = memory
        self.most_rows = most_rows
        self.processes = processes

    def read_table(self, source: str) -> CatalogTable | LakeSource:
        no_catalog(source)

    def folders_table(self, source: str, root: str) -> Table:
        no_catalog(source)

    def add_partitions(self, source: str, root: str, folders: Collection[str]) -> None:
        no_catalog(source)

    def columns_of_text(
        self, root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]
    ) -> list[tuple[int, pa.Schema]]:
        return [(i, columns_in(root.storage, format_name, options, info)) for i, info in enumerate(files)]

    def write_page_maps(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        files: Sequence[SourceFileEntry],
        stages: Stages,
    ) -> dict[str, PageMapsEntry]:
        there = [file for file in files if file.rows]
        shares = shares_of([file.size for file in there], os.cpu_count() or 1) if there else []
        made: dict[str, PageMapsEntry] = {}
        with stages.stage("page maps", len(there), FILES), ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, share in enumerate(shares):
                blocks = list(pool.map(lambda file: exported_maps(root.storage, spec, there[file]), share))
                placed = write_page_maps(storage, page_maps_path(segment, number), blocks)
                made |= {there[file].path: entry for file, entry in zip(share, placed, strict=True)}
                stages.tell(Step("page maps", len(made), len(there), FILES))
        return made

    def write_index_files(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        described: Sequence[Described],
        stages: Stages,
    ) -> tuple[list[IndexFileEntry], list[Described]]:
        rows = sum(one.likely_rows for one in described)
        is_about = not all(one.is_counted for one in described)
        if self.most_rows is not None and rows > self.most_rows:
            raise UsageError(
                f"{rows:,} rows are to be indexed, at most {self.most_rows:,} without Spark unless asked for; "
                "say --engine local, or install Spark (pip install 'gnomon-index[spark]')",
                root.name,
            )
        pieces = [
            Piece(number, split, one.scan_bytes // len(one.splits))
            for number, one in enumerate(described)
            for split in one.splits
        ]
        processes, memory = self._processes(storage, root, rows, sum(one.bytes for one in pieces))
        scan = partial(_scan, root.storage, spec)
        with stages.stage("write", len(described), FILES, rows, is_about):
            on_progress = _reporter(stages, Step("write", 0, len(described), FILES, rows, is_about))
            files = [one.entry for one in described]
            written, scanned = index_pieces(storage, spec, segment, scan, pieces, files, memory, processes, on_progress)
        rows_of, ragged = {one.file: one.rows for one in scanned}, {one.file: one.ragged for one in scanned}
        return written, with_rows(described, rows_of, ragged)

    def _processes(self, storage: Storage, root: SourceRoot, rows: int, scan_bytes: int) -> tuple[int, int]:
        """The number of processes for a build, and the memory that they share."""
        if self.processes is not None:
            return self.processes, self.memory
        is_worth = rows >= WORTH_ROWS or scan_bytes >= WORTH_BYTES
        processes = processes_for(self.memory, storage, root.storage) if is_worth else 1
        return processes, max(self.memory, processes * LEAST_MEMORY)

    @contextmanager
    def running(self, job: str) -> Iterator[None]:
        yield


def _scan(
    storage: Readable, spec: IndexSpec, file: SourceFileEntry, split: Split, on_ragged: Callable[[int], None]
) -> Iterator[list[pa.Array]]:
    return scan_file(storage, file.info, spec, split, on_ragged)


def _reporter(stages: Stages, step: Step) -> Callable[[int], None]:
    return lambda done: stages.tell(step._replace(done=done))
