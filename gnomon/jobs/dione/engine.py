"""The engine of an import: it reads the entries from an index of Dione instead of scanning the source."""

from collections.abc import Collection, Mapping, Sequence

from gnomon.jobs.build import Engine
from gnomon.jobs.dione.dione_index import DioneIndex
from gnomon.jobs.dione.entry_import import EntryImport, LeftOut
from gnomon.jobs.files import CatalogTable, Described
from gnomon.jobs.local import LocalEngine
from gnomon.jobs.stages import Stages
from gnomon.shadow.maintenance import MEMORY_BYTES, index_entries
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceRoot
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import LakeSource, Table


class DioneEngine(LocalEngine):
    """Writes index files from the entries of `index`. `catalog` reads tables of the catalog; None if no table is named.
    `left_out` has the files whose entries were not imported."""

    def __init__(
        self,
        index: DioneIndex,
        catalog: Engine | None = None,
        compare_all: bool = False,
        moved: Mapping[str, str] | None = None,
        memory: int = MEMORY_BYTES,
    ) -> None:
        super().__init__(memory)
        self._index = index
        self._tables: Engine = catalog or LocalEngine()
        self._compare_all = compare_all
        self._moved = moved or {}
        self.left_out: list[LeftOut] = []

    def read_table(self, source: str) -> CatalogTable | LakeSource:
        return self._tables.read_table(source)

    def folders_table(self, source: str, root: str) -> Table:
        return self._tables.folders_table(source, root)

    def add_partitions(self, source: str, root: str, folders: Collection[str]) -> None:
        self._tables.add_partitions(source, root, folders)

    def write_index_files(
        self,
        storage: Storage,
        root: SourceRoot,
        spec: IndexSpec,
        segment: str,
        described: Sequence[Described],
        stages: Stages,
    ) -> tuple[list[IndexFileEntry], list[Described]]:
        entry_import = EntryImport(self._index, root, spec, described, self._compare_all, self._moved)
        files = [one.entry for one in described]
        with stages.stage("import", len(described), "files"):
            written = index_entries(
                storage, spec, segment, entry_import.entries(), files, self.memory, False, lambda: entry_import.left_out
            )
        self.left_out = [LeftOut(files[i].path, reason) for i, reason in sorted(entry_import.left_out.items())]
        return written, [one for i, one in enumerate(entry_import.described) if i not in entry_import.left_out]
