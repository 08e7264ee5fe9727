"""The import of an index of Dione's: a build whose entries are read from it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from gnomon.jobs.build import BuildRequest, BuildResult, Engine, build_index
from gnomon.jobs.dione.dione_index import find_index
from gnomon.jobs.dione.engine import DioneEngine
from gnomon.jobs.dione.entry_import import LeftOut
from gnomon.jobs.files import no_catalog
from gnomon.jobs.stages import Progress
from gnomon.shadow.errors import UsageError
from gnomon.shadow.storage import Place, as_location, patiently
from gnomon.shadow.tables import is_lake


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
