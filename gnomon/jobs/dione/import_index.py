"""The import of an index of Dione's: a build whose engine reads the entries from it instead of scanning the source."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from gnomon.jobs.build import BuildRequest, BuildResult, Engine, LocalEngine, build_index
from gnomon.jobs.dione.dione_index import DioneIndex, find_index
from gnomon.jobs.dione.entry_import import EntryImport, LeftOut
from gnomon.jobs.files import CatalogTable, Described, no_catalog
from gnomon.jobs.stages import Progress, Stages
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, SourceRoot
from gnomon.shadow.storage import Place, Storage, as_location, patiently
from gnomon.shadow.tables import LakeSource, Table, is_lake
from gnomon.shadow.write import MEMORY_BYTES, index_entries


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


@dataclass(frozen=True)
class ImportResult:
    """The result of an import: the result of its build, and the source files that it left out, since their entries in
    Dione's index are missing or wrong. `gnomon build INDEX` indexes them."""

    build: BuildResult
    left_out: Sequence[LeftOut]

    def to_json(self) -> dict[str, object]:
        return {**asdict(self.build), "left_out": [one._asdict() for one in self.left_out]}


@patiently()
def import_dione(
    engine: Engine | None,
    dione: Place,
    index: Place,
    source: Place | None = None,
    include: Sequence[str] | None = None,
    *,
    format: str = "auto",
    options: Mapping[str, str] | None = None,
    buckets: int | None = None,
    flat: bool | None = None,
    compare_all: bool = False,
    moved: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ImportResult:
    """Import an index of Dione. `dione` is its folder or its table `table:db.name`. `source` is the data (a path or
    `table:db.name`), by default the table that the index table names. `include` chooses from the index's more fields,
    by default all.

    It imports the entries of source files that `index` does not cover yet. Each row of such a file must have exactly
    one entry, and sampled rows must have the keys of their entries. All rows of a file are compared if the file was
    written after Dione's index, or with `compare_all`. A file that fails a check is left out. `moved` maps folders as
    Dione's entries name them to the folders where these files lie now. `engine` reads tables of the catalog; None if no
    table is named. Other arguments and errors as in `build`."""
    found = find_index(as_location(dione), no_catalog if engine is None else engine.read_table)
    place = as_location(source) if source is not None else found.source
    if not place:
        raise UsageError("a folder of Dione's does not say which data it is of; name the source (--source)", found.name)
    if is_lake(place):
        raise UsageError("Dione indexes no tables of this format", place)
    unknown = [name for name in include or () if name not in found.more_fields]
    if unknown:
        known = ", ".join(found.more_fields) or "none"
        raise UsageError(f"include: {unknown[0]} is not one of its more fields; it has {known}", found.name)
    kept = found.more_fields if include is None else include
    dione_engine = DioneEngine(found, engine, compare_all, moved)
    request = BuildRequest(found.keys, kept, buckets, format=format, options=options or {}, flat=flat)
    built = build_index(dione_engine, place, as_location(index), request, progress)
    return ImportResult(built, dione_engine.left_out)
