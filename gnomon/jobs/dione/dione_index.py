"""An index of Dione: its files by partition, its columns, and its data table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gnomon.btree import BTreeError, BTreeReader, EntrySchema
from gnomon.jobs.files import CatalogTable, is_table, listed
from gnomon.shadow.errors import SourceError, SourceNotFound, UsageError
from gnomon.shadow.metadata import SPEC_PATH
from gnomon.shadow.storage import FileInfo, Storage, join, storage_at
from gnomon.shadow.tables import TABLE_PREFIX, LakeSource, partition_of, partition_values
from gnomon.sources import POINTER_COLUMNS

SUFFIX = ".btree.avro"
# Properties of Dione's index tables.
DATA_TABLE, KEYS, MORE_FIELDS = "index.meta.dataTableName", "index.meta.keys", "index.meta.moreFields"
SEPARATOR = "|"  # between names in these properties
TEXT, INTEGERS = ("string",), ("bigint", "int")  # types of pointer columns
WHILE_READ = "while the index was read"

Values = Mapping[str, str | None]  # of a partition, by column
ReadTable = Callable[[str], CatalogTable | LakeSource]


class DioneFile(NamedTuple):
    """One file of the index."""

    storage: Storage
    info: FileInfo

    @property
    def name(self) -> str:
        return join(self.storage.root, self.info.path)


@dataclass(frozen=True)
class DioneIndex:
    """`files` has the values and the files of each partition. `source` is the data table; "" if the index does not name
    it."""

    name: str
    files: Sequence[tuple[Values, Sequence[DioneFile]]]
    keys: Sequence[str]
    more_fields: Sequence[str]
    source: str = ""


def dione_table(table: CatalogTable, asked: str) -> DioneIndex:
    """The index of one of Dione's index tables in the catalog. UsageError for any other table."""
    properties = table.properties
    if DATA_TABLE not in properties:
        raise UsageError(f"expected an index table of Dione's, which has the property {DATA_TABLE}", asked)
    files = []
    for partition, place in table.places.items():
        storage = storage_at(place)
        files.append((partition_values(partition), _files(storage)))
    declared = [_names(properties.get(name, "")) for name in (KEYS, MORE_FIELDS)]
    index = DioneIndex(asked, files, declared[0], declared[1], TABLE_PREFIX + properties[DATA_TABLE])
    for name, names, there in zip((KEYS, MORE_FIELDS), declared, _columns(index), strict=True):
        if sorted(there) != sorted(names):
            raise UsageError(f"property {name} names {_shown(names)}, its files have {_shown(there)}", asked)
    return index


def dione_folder(location: str) -> DioneIndex:
    """The index in a folder. SourceNotFound where the folder has no index files of Dione; UsageError for an index of
    Gnomon."""
    storage = storage_at(location)
    if any(True for _ in storage.list(SPEC_PATH.rpartition("/")[0], hidden=True)):
        raise UsageError("an index of ours; expected the folder of an index of Dione's", location)
    by_partition: dict[str, list[DioneFile]] = {}
    for file in _files(storage):
        by_partition.setdefault(partition_of(file.info.path), []).append(file)
    files = [(partition_values(partition), found) for partition, found in by_partition.items()]
    index = DioneIndex(location, files, (), ())
    keys, values = _columns(index)
    return DioneIndex(location, files, keys, values)


def find_index(place: str, read_table: ReadTable) -> DioneIndex:
    """The index `table:db.name`, or the one in a folder."""
    if not is_table(place):
        return dione_folder(place)
    table = read_table(place)
    if not isinstance(table, CatalogTable):
        raise UsageError("expected an index table of Dione's", place)
    return dione_table(table, place)


def _files(storage: Storage) -> list[DioneFile]:
    return [DioneFile(storage, info) for info in storage.list() if info.path.endswith(SUFFIX)]


def _names(text: str) -> list[str]:
    return [name for name in text.split(SEPARATOR) if name]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _columns(index: DioneIndex) -> tuple[list[str], list[str]]:
    """The key columns and the more fields of the files, from the first file that can be read. UsageError for files
    without pointers, or where no file can be read."""
    damage = None
    for _, files in index.files:
        for file in files:
            try:
                with listed(file.storage, file.info, WHILE_READ) as reader:
                    return _columns_of(BTreeReader(reader).schema, file)
            except (BTreeError, SourceError) as error:
                damage = damage or error
    if damage is not None:
        raise UsageError(f"no file of the index of Dione's can be read; the first one: {damage}", index.name)
    what = f"no files of an index of Dione's (names that end in {SUFFIX})"
    raise SourceNotFound(what, index.name, expected="the folder of such an index")


def _columns_of(schema: EntrySchema, file: DioneFile) -> tuple[list[str], list[str]]:
    values = {column.name: column.type for column in schema.values}
    missing = [name for name in POINTER_COLUMNS if name not in values]
    if missing:
        raise UsageError(f"no column {', '.join(missing)}: a key-value folder has no pointers", file.name)
    for name, kinds in zip(POINTER_COLUMNS, (TEXT, *[INTEGERS] * 3), strict=True):
        if values[name] not in kinds:
            expected = f"{kinds[0]}, as Dione writes it"
            raise UsageError("not a pointer", file.name, column=name, expected=expected, found=values[name])
    return [column.name for column in schema.keys], [name for name in values if name not in POINTER_COLUMNS]
