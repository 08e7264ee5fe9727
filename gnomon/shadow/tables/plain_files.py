"""A folder of files, or one file, as a source: the files that are there, with the partitions of their folders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from gnomon.shadow.errors import SourceNotFound
from gnomon.shadow.storage import FileInfo, Readable, is_hidden, join
from gnomon.shadow.tables.lake_tables import HIDDEN_FOLDERS
from gnomon.shadow.tables.partitions import partition_of
from gnomon.shadow.tables.table_source import Recorded, Versions


@dataclass(frozen=True)
class PlainFiles:
    """The files below the root. With `file_name`, the source is only this file in the root, without partition
    columns."""

    file_name: str = ""

    @property
    def name(self) -> str:
        return ""

    @property
    def source_name(self) -> str:
        return ""

    @property
    def format(self) -> str:
        return ""

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    @property
    def columns(self) -> str | None:
        return None

    @property
    def types(self) -> Mapping[str, str] | None:
        return {} if self.file_name else None

    @property
    def folders_elsewhere(self) -> Sequence[str]:
        return ()

    @property
    def recorded(self) -> Recorded:
        return Recorded()

    @property
    def versions(self) -> Versions | None:
        return None

    def now(self) -> Self:
        return self

    def list(self, storage: Readable) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """As in TableSource. SourceNotFound where there are no data files."""
        if self.file_name:
            return [self._the_file(storage)], []
        files, skipped = _by_visibility(storage.list(hidden=HIDDEN_FOLDERS))
        if not any(info.size for info in files):
            raise SourceNotFound(
                "no data files there (a file of no bytes is none)", storage.root, expected="some at or below it"
            )
        return files, skipped

    def _the_file(self, storage: Readable) -> FileInfo:
        name = self.file_name
        try:
            with storage.open(name) as file:
                return FileInfo(name, file.size, file.mtime_ns, file.etag, file.ctime_ns, file.inode)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            where = join(storage.root, name)
            raise SourceNotFound("no such file", where, expected="the one that is the source") from None

    def partition_of(self, path: str, partitioned: bool) -> str:
        return partition_of(path) if partitioned else ""

    def is_still_in(self, path: str, partition: str) -> bool:  # a file never changes its folder
        return True


def _by_visibility(infos: Iterable[FileInfo]) -> tuple[list[FileInfo], list[FileInfo]]:
    """The files that engines read, and the files that they skip."""
    visible: list[FileInfo] = []
    hidden: list[FileInfo] = []
    for info in infos:
        (hidden if any(map(is_hidden, info.path.split("/"))) else visible).append(info)
    return visible, hidden
