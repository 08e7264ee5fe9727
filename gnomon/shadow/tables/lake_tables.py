"""Tables whose own metadata decides which files and rows are live: Delta Lake, Iceberg, Hudi, Lance, Paimon, and the
output of a Spark streaming query.

The folder of such a table holds replaced data files and deleted rows. An index of the plain files would answer them,
and the table would not see a file that an append adds. So a source in such a table is refused, unless the caller asks
to index every file (`as_files`)."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import Readable, in_order, join, split, storage_at


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
