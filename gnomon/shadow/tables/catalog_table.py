"""A table of Spark's catalog as a source: its partitions, each in a folder of its own that may lie anywhere.

A file belongs to the partition of its folder, and to none where the catalog has no partition for its folder. Files in
subfolders are refused, since engines differ in whether they read them.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.storage import FileInfo, Readable, below, host, is_absolute, join, storage_at
from gnomon.shadow.tables.table_source import Recorded, Versions

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
