"""Small Delta and Iceberg tables that Spark wrote, and for each version the rows that Spark reads.

A table is checked in as `NAME.json`, its description, and `NAME.tar.gz`: its files and its rows. Iceberg's metadata
holds absolute paths, so each table has one fixed place below `PLACE`, and the first use unpacks it there. The place is
shared by all tests of the machine: a test that writes to a table copies it first (Delta), or writes one of its own.
`deploy/make-tables.sh` writes the tables anew."""

import fcntl
import functools
import json
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLACE = "/tmp/gnomon-tables"


@dataclass(frozen=True)
class Version:
    """One version of a table.

    `version` is the Delta version, or the id of the Iceberg snapshot (-1: the table has none yet). `key` names the
    columns that tell rows apart. `columns` are the columns in order with their Spark types. `gone` says that VACUUM or
    an expiry deleted files of the version: a reader must refuse it."""

    version: int
    operation: str
    key: tuple[str, ...]
    columns: dict[str, str]
    row_count: int
    gone: bool
    table: "Table" = field(repr=False)
    metadata_file: str = field(repr=False)
    truth_file: str = field(repr=False)

    @property
    def metadata(self) -> str:
        """The absolute path of the Iceberg metadata file that is current at this version; "" for Delta."""
        return f"{self.table.path}/{self.metadata_file}" if self.metadata_file else ""

    def rows(self) -> list[dict[str, Any]]:
        """All live rows, sorted by the key, with values as `tests.golden.tables.values.exact` gives them."""
        text = (unpacked(self.table) / self.truth_file).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@dataclass(frozen=True)
class Table:
    """One table. `format` is "delta" or "iceberg"; `key` is the key of the first version."""

    name: str
    format: str
    about: str
    key: tuple[str, ...]
    folder: str = field(repr=False)
    versions: list[Version] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The absolute path of the table's root folder, unpacked."""
        return str(unpacked(self) / "table")


@functools.cache
def unpacked(table: Table) -> Path:
    """The folder below `PLACE` with the table's files and rows. An unpacked copy that has exactly the files of the
    archive stays as it is; another one is replaced. Several processes may do this at once: a lock lets one do it."""
    place = Path(PLACE) / table.folder
    Path(PLACE).mkdir(parents=True, exist_ok=True)
    with open(f"{PLACE}/.lock", "w") as lock, tarfile.open(HERE / f"{table.name}.tar.gz") as archive:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_copy(place, archive):
            return place
        with tempfile.TemporaryDirectory(prefix=f".{table.folder}-", dir=PLACE) as temporary:
            archive.extractall(f"{temporary}/new", filter="data")
            if place.exists():
                place.rename(f"{temporary}/old")
            Path(f"{temporary}/new").rename(place)
    return place


def is_copy(place: Path, archive: tarfile.TarFile) -> bool:
    """Whether a folder has the files of the archive, with the same bytes, and no others."""
    members = {member.name: member for member in archive.getmembers()}
    there = {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
    return there.keys() == members.keys() and all(
        there[name].read_bytes() == archive.extractfile(member).read() for name, member in members.items()
    )


def described(file: Path) -> Table:
    """The table of a description."""
    text = json.loads(file.read_text(encoding="utf-8"))
    versions: list[Version] = []
    key = tuple(text["versions"][0]["key"])
    table = Table(text["name"], text["format"], text["about"], key, text["folder"], versions)
    versions += [
        Version(
            each["version"],
            each["operation"],
            tuple(each["key"]),
            each["columns"],
            each["rows"],
            each["gone"],
            table,
            each["metadata"],
            each["truth"],
        )
        for each in text["versions"]
    ]
    return table


TABLES = [described(file) for file in sorted(HERE.glob("*.json"))]
