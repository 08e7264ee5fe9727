"""Tables of a catalog as sources: their names, and their metadata in the catalog."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import SourceRoot
from gnomon.shadow.storage import below, source_storage
from gnomon.shadow.tables import TABLE_PREFIX, LakeSource, Table, is_lake, lake_source


@dataclass(frozen=True)
class CatalogTable:
    """A table in the catalog's current state: `location` is its root, `places` has the place of each partition, by its
    folder in an index ("" for a table without partitions), `properties` are its TBLPROPERTIES."""

    name: str
    location: str
    format: str
    options: Mapping[str, str]
    columns: str
    types: Mapping[str, str]
    places: Mapping[str, str]
    properties: Mapping[str, str]

    def root_at(self, location: str) -> SourceRoot:
        """The table as a source. Files below `location` are named by their paths relative to it."""
        return SourceRoot(source_storage(location), self.table_at(location))

    def table_at(self, location: str) -> Table:
        """The folders of the table's partitions. A folder below `location` is named by its path relative to it."""
        root = source_storage(location).root
        folders = {partition: below(root, place) for partition, place in self.places.items()}
        return Table(self.name, folders, self.types, self.columns, self.format, self.options)


def is_table(source: str) -> bool:
    """Whether a source is the name of a catalog table."""
    return source.startswith(TABLE_PREFIX)


ReadTable = Callable[[str], CatalogTable | LakeSource]  # `table:db.name` of the catalog


def named_source(
    source: str, read_table: ReadTable, table_version: str | None = None
) -> CatalogTable | LakeSource | str:
    """The source that a user named: a table of the catalog, which `read_table` reads, a lake table, or a path.
    `table_version` is a version of a lake table, None for the newest. Errors as in `read_table` and `lake_source`."""
    if is_lake(source):
        return lake_source(source, table_version or "")
    if table_version is not None:
        raise UsageError("table version: only Delta and Iceberg tables have one", source)
    if not is_table(source):
        return source
    return read_table(source)


def no_catalog(source: str) -> NoReturn:
    """Raise UsageError for a table of the catalog where there is no Spark."""
    raise UsageError("a table of the catalog is found by Spark; expected --engine spark", source)
