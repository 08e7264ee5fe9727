"""The interface of a source: a folder, one file, a table of Spark's catalog, or a lake table. Code that uses this
interface does not depend on a table format.

In a table of Spark's catalog each partition has a folder of its own that may lie anywhere. A file belongs to the
partition of its folder, and to none where the catalog has no partition for its folder. Files in subfolders are refused,
since engines differ in whether they read them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pyarrow as pa

from gnomon.shadow.errors import SourceNotFound, UsageError
from gnomon.shadow.storage import FileInfo, Readable, below, host, is_absolute, join, storage_at

if TYPE_CHECKING:
    from pyroaring import BitMap64


class LakeFile(NamedTuple):
    """A live data file: its bytes, its partition as folder names ("" where the table has no partition columns), and its
    format, a name in `gnomon.sources.FORMATS`. `constants` are other columns whose value for the whole file the table's
    metadata has: a file that lacks one must not answer null."""

    size: int
    partition: str
    format: str = "parquet"
    constants: tuple[str, ...] = ()


class TableVersion(NamedTuple):
    """A version of a lake table. `version` is the number of a Delta version or the id of an Iceberg snapshot ("" of a
    table without one). `metadata` is the path of Iceberg's metadata file, or a digest of the version's file in Delta's
    log."""

    uuid: str
    version: str
    metadata: str = ""


class TableHistory(NamedTuple):
    """The versions that a table knows. `branches` has each line of history, oldest version first; a version to which
    the table was rolled back is there twice. The table's own line is MAIN. `expired` are versions whose metadata the
    table removed, and which are still known by name."""

    branches: Mapping[str, Sequence[TableVersion]]
    expired: Sequence[str]


class EqualityDeletes(NamedTuple):
    """Deletes by values: `rows` has the values of some columns, by name; `files` are the paths of the data files whose
    rows with these values are deleted. Nulls equal nulls. `location` is the file of the deletes."""

    location: str
    rows: pa.Table
    files: frozenset[str]


def no_equality_deletes() -> Sequence[EqualityDeletes]:
    """No deletes, for a table without equality deletes."""
    return ()


@dataclass(frozen=True)
class LakeContent:
    """The content of a lake table at a version. `name` is the name that the index records. Files have paths relative to
    `root`. `types` has its partition columns with their types, in order, `columns` the columns in the files, as DDL.
    `deleted` reads the rows that are deleted in each file, by path: the offsets of their pointers. `equality_deletes`
    reads the deletes by values. `folders` are those outside the root in which writers put new files. `own_columns` are
    those when the version was made, which readers of a version by its number take; "" where `columns` are the same."""

    version: TableVersion
    name: str
    root: str
    files: Mapping[str, LakeFile]
    types: Mapping[str, str]
    columns: str
    deleted: "Callable[[], Mapping[str, BitMap64]]"
    equality_deletes: Callable[[], Sequence[EqualityDeletes]] = no_equality_deletes
    folders: tuple[str, ...] = ()
    own_columns: str = ""


def check_constants(content: LakeContent, path: str, names: Collection[str]) -> None:
    """Raise UsageError where a file, whose columns are `names`, lacks a column whose value only the table's metadata
    has."""
    lost = [name for name in content.files[path].constants if name not in names]
    if lost:
        raise UsageError(
            "the file lacks a column by which the table was partitioned when it was written; rewrite the file "
            "(rewrite_data_files), since its value is only in the table's metadata",
            path,
            column=lost[0],
        )


class Recorded(NamedTuple):
    """The state of a source that a snapshot records: the folder of each partition of a catalog table, or the version of
    a lake table. Other sources have neither."""

    folders: Mapping[str, str] | None = None
    version: TableVersion | None = None


class Versions(Protocol):
    """A source whose own log has its versions, the live files of each, and the deleted rows."""

    @property
    def content(self) -> LakeContent:
        """The source at its version, read once."""

    def newest(self, known: TableVersion) -> TableVersion:
        """The newest version, by one small read. `known` is the version on record."""

    def history(self, known: TableVersion) -> "TableHistory":
        """The versions that the table knows. `known` is the version on record."""

    def count(self, known: TableVersion) -> int:
        """The number of live rows at a version, as the table's own library counts them, which is not the code that
        finds them for the index. UsageError where that library cannot."""

    def is_before(self, known: TableVersion) -> bool:
        """Whether its version is older than `known`."""

    def check_follows(self, known: TableVersion) -> None:
        """Raise SpecMismatch where an index that covers `known` cannot be brought to this version."""


class TableSource(Protocol):
    """The source of an index. Paths are relative to its root, or whole locations.

    `name` is on record in the index, `source_name` is the name by which `build` accepts it; both are "" for folders and
    files. `format` is "" where the files tell it. `file_name` is the one file of the source, "" for all other sources.
    `columns` are the columns that it declares, as DDL without partition columns, None where the files declare them.
    `types` are the partition columns with their types, in order, None where the folders tell them. `versions` is None
    for a source without a log of its own, whose files are those that are listed."""

    @property
    def name(self) -> str: ...

    @property
    def source_name(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def file_name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, str]: ...

    @property
    def columns(self) -> str | None: ...

    @property
    def types(self) -> Mapping[str, str] | None: ...

    @property
    def folders_elsewhere(self) -> Sequence[str]:
        """The folders of partitions that do not lie below the root."""

    @property
    def recorded(self) -> Recorded: ...

    @property
    def versions(self) -> Versions | None: ...

    def now(self) -> Self:
        """The same source, but its metadata is read again."""

    def list(self, storage: Readable) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """The current data files, and the other files, which engines skip. SourceNotFound where the source is not
        there."""

    def partition_of(self, path: str, partitioned: bool) -> str:
        """The partition of a file as folder names; "" for a file in none. `partitioned` says whether the index has
        partition columns."""

    def is_still_in(self, path: str, partition: str) -> bool:
        """Whether a file that was indexed in this partition still belongs to it."""


LISTED_AT_ONCE = 16  # folders
TABLE_PREFIX = "table:"  # marks a source that is a table of Spark's catalog


@dataclass(frozen=True)
class Table:
    """`folders` maps each partition, by its folder name in an index ("" where the table has none), to the place of its
    files: a path below the table's root ("" is the root), or a whole location. `types` has the partition columns with
    their types, in order, `columns` the others as DDL. `format` and `options` say how to read the files."""

    name: str
    folders: Mapping[str, str]
    types: Mapping[str, str]
    columns: str
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def source_name(self) -> str:
        """The name by which `build` accepts the table."""
        return f"{TABLE_PREFIX}{self.name}"

    @property
    def file_name(self) -> str:
        return ""

    @property
    def recorded(self) -> Recorded:
        return Recorded(self.folders)

    @property
    def versions(self) -> Versions | None:
        return None

    def now(self) -> "Table":
        return self

    @property
    def folders_elsewhere(self) -> Sequence[str]:
        return [folder for folder in self.folders.values() if is_absolute(folder)]

    @cached_property
    def _partitions(self) -> dict[str, str]:
        """The partition of each folder."""
        return {folder: partition for partition, folder in self.folders.items()}

    def partition_of(self, path: str, partitioned: bool = True) -> str:  # the catalog has it
        return self._partitions.get(path.rpartition("/")[0], "")

    def is_still_in(self, path: str, partition: str) -> bool:
        """Whether the catalog has the file's folder for this partition: it may give the folder to another one."""
        return self.partition_of(path) == partition

    def list(self, storage: Readable) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """As in TableSource, ordered by path. SourceNotFound where files lie in subfolders of a partition's folder."""
        root = storage.root
        places = {folder: join(root, folder) for folder in self.folders.values()}
        stores = {at: storage_at(at) for at in set(map(host, places.values()))}
        with ThreadPoolExecutor(LISTED_AT_ONCE) as pool:
            found = pool.map(lambda pair: self._in(root, stores[host(pair[1])], *pair), places.items())
            return sorted(info for files in found for info in files), []

    def _in(self, root: str, store: Readable, folder: str, place: str) -> Sequence[FileInfo]:
        files = []
        for info in store.list(below(store.root, place)):
            path = below(place, join(store.root, info.path))
            within, _, _ = path.rpartition("/")
            if not info.size:  # Hive leaves an empty file for a bucket without rows; engines skip it
                continue
            if not within:
                files.append(info._replace(path=f"{folder}/{path}" if folder else path))
            elif not any(below(root, join(place, part)) in self._partitions for part in _parents(within)):
                raise SourceNotFound(
                    f"lies below the folder of a partition of {self.name} and not in it, "
                    "where Spark does not read it; move it up, or away",
                    join(place, path),
                )
        return files


def _parents(folder: str) -> Iterable[str]:
    """A folder and those above it."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
