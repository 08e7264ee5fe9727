"""A folder of files, or one file, as a source: the files that are there, with the partitions of their folders. A source
that belongs to a table of Delta Lake, Iceberg, Hudi, Lance or Paimon, or is the output of a Spark streaming query, is
refused.

The table's own metadata decides which files and rows are live: its folder holds replaced data files and deleted rows.
An index of the plain files would answer them, and the table would not see a file that an append adds. The caller may
ask to index every file nevertheless (`as_files`)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, Self

from gnomon.shadow.errors import SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import FileInfo, Readable, in_order, is_hidden, join, split, storage_at
from gnomon.shadow.tables.partitions import partition_of
from gnomon.shadow.tables.table_source import Recorded, Versions


class LakeTable(NamedTuple):
    """A table: the name of its format, its root folder (a whole path or URL), and the path of one of its metadata files
    below the root."""

    format: str
    root: str
    file: str

    def __str__(self) -> str:
        article = "an" if self.format[0] in "AEIOU" else "a"
        return f"{article} {self.format} at {self.root} ({self.file} is there)"

    @property
    def source_name(self) -> str:
        """How `build` accepts the table; "" for a format that is not read."""
        by_catalog = f"iceberg:CATALOG.namespace.table, or iceberg:{self.root}/metadata/NEWEST.metadata.json"
        return {"Delta Lake table": f"delta:{self.root}", "Iceberg table": by_catalog}.get(self.format, "")

    def to_json(self) -> dict[str, str]:
        return self._asdict()


# Format: its metadata folders below the table's root, and the names of their files. All folders must exist.
_FORMATS: Mapping[str, Mapping[str, re.Pattern[str]]] = {
    "Delta Lake table": {"_delta_log": re.compile(r"[^/]+\.json|[^/]+\.checkpoint[^/]*\.parquet|_last_checkpoint")},
    "Iceberg table": {"metadata": re.compile(r"[^/]+\.metadata\.json(\.gz)?|version-hint\.text")},
    "Hudi table": {".hoodie": re.compile(r"hoodie\.properties")},
    "Lance dataset": {"_versions": re.compile(r"[^/]+\.manifest")},
    "Paimon table": {"snapshot": re.compile(r"snapshot-\d+"), "manifest": re.compile(r"manifest[^/]*")},
    "Spark streaming sink": {"_spark_metadata": re.compile(r"\d+(\.compact)?")},
}
MOST_LISTED = 10_000  # files of a folder that has the name of a metadata folder and lies above the source
# Metadata folders that engines skip.
HIDDEN_FOLDERS = frozenset({"_delta_log", ".hoodie", "_versions", "_spark_metadata"})
_FOLDERS = {name: (format_name, file) for format_name, folders in _FORMATS.items() for name, file in folders.items()}


def table_among(root: str, paths: Iterable[str]) -> LakeTable | None:
    """The table whose metadata lies among the files below a folder; the first by root, if there are several. `paths`
    are relative to the folder, and include files that engines skip."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path in paths:
        parts = path.split("/")
        for depth, name in enumerate(parts[:-1]):
            if name in _FOLDERS:
                format_name, file = _FOLDERS[name]
                if file.fullmatch("/".join(parts[depth + 1 :])):
                    seen = found.setdefault(("/".join(parts[:depth]), format_name), {})
                    seen.setdefault(name, "/".join(parts[depth:]))
    for (folder, format_name), seen in sorted(found.items()):
        if seen.keys() == _FORMATS[format_name].keys():
            return LakeTable(format_name, join(root, folder), min(seen.values()))
    return None


def table_around(folder: str) -> LakeTable | None:
    """The table whose root is a folder (a whole path or URL), or a folder above it, the nearest first. Folders that
    cannot be listed are skipped: a user may have no right to list the folders above the source."""
    folders = [folder]
    while (above := split(folders[-1])[0]) != folders[-1]:
        folders.append(above)
    stores = [(storage_at(one), name) for one in folders for name in _FOLDERS]
    files = dict(zip(stores, in_order([partial(_first_file, *store) for store in stores]), strict=True))
    there = [(storage, path) for (storage, _), path in files.items() if path is not None]
    for one in folders:
        if found := table_among(one, [path for storage, path in there if storage.root == one]):
            return found
    return None


def _first_file(storage: Readable, name: str) -> str | None:
    """The first file of a format's metadata in a folder of that name."""
    _, file = _FOLDERS[name]
    with suppress(StorageError, OSError):
        paths = (info.path for info in islice(storage.list(name, hidden=True), MOST_LISTED))
        return next((path for path in paths if file.fullmatch(path.removeprefix(f"{name}/"))), None)
    return None


def check_plain_files(found: LakeTable | None, source: str, advice: str) -> None:
    """Raise UsageError, with `advice`, where the files of a source belong to a table."""
    if found is not None:
        raise UsageError(
            f"these files belong to {found}, whose metadata says which files and rows are live; read as "
            f"plain files it would give deleted and replaced rows; {advice}",
            source,
        )


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
