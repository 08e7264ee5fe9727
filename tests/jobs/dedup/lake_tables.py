"""Small Delta and Iceberg tables for tests of appends, changed and read by the tables' own libraries."""

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.query import QueryBuilder
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config

INFO = pa.struct([pa.field("tags", pa.list_(pa.string())), pa.field("counts", pa.map_(pa.string(), pa.int32()))])
ROWS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("part", pa.string()), ("info", INFO)])
DDL = "id bigint, day date, part string, info struct<tags:array<string>,counts:map<string,int>>"
PARTS = ["a", "b c", "é/ü%=x", None]


def row(number: int) -> dict[str, Any]:
    info = None if number % 5 == 0 else {"tags": [f"t{number}", None], "counts": {"n": number}}
    day = dt.date(2026, 1, 1) + dt.timedelta(days=number % 3)
    return {"id": number, "day": day, "part": PARTS[number % len(PARTS)], "info": info}


def rows(begin: int, end: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in range(begin, end)], ROWS)


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """The rows with other values in a column."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


class Lake(Protocol):
    """A table with the rows 0 to 39, without 7 and 8, which were deleted. `name` is the one of a source."""

    name: str

    def append(self, table: pa.Table) -> None: ...

    def delete(self, number: int) -> None: ...

    def compact(self) -> None: ...

    def retype(self) -> None:
        """Change the schema so that staged files do not fit any more."""

    def widen(self) -> None:
        """Add a column that may be null."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows by the table's own reader, ordered by id."""

    def files(self) -> list[str]:
        """The paths of the live files."""

    def appends(self) -> list[str]:
        """The appends of Gnomon that the table's history names, the newest first."""


class DeltaLake:
    """A table below a folder, or below a URL of S3."""

    def __init__(self, root: Path | str, partition_by: list[str] | None = None, configuration: Any = None) -> None:
        self.root, self.name = f"{root}/table", f"delta:{root}/table"
        self.options = {"allow_http": "true"} if isinstance(root, str) else None
        write_deltalake(
            self.root,
            rows(0, 40),
            partition_by=partition_by,
            configuration=configuration,
            storage_options=self.options,
        )
        self.delete(7)
        self.delete(8)

    def table(self) -> DeltaTable:
        return DeltaTable(self.root, storage_options=self.options)

    def append(self, table: pa.Table) -> None:
        write_deltalake(self.table(), table, mode="append")

    def delete(self, number: int) -> None:
        self.table().delete(f"id = {number}")

    def compact(self) -> None:
        self.table().optimize.compact()

    def retype(self) -> None:
        changed = rows(0, 0).drop_columns("info").append_column("info", pa.array([], pa.string()))
        write_deltalake(self.table(), changed, mode="overwrite", schema_mode="overwrite")

    def widen(self) -> None:
        self.table().alter.add_columns([Field("added", PrimitiveType("string"), nullable=True)])

    def rows(self) -> list[dict[str, Any]]:
        found = QueryBuilder().register("t", self.table()).execute("select * from t order by id").read_all()
        return plain(pa.table(found).to_pylist())

    def files(self) -> list[str]:
        return self.table().file_uris()

    def appends(self) -> list[str]:
        return [one["gnomon.append"] for one in self.table().history() if "gnomon.append" in one]


def configure(monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
    """Set the properties of pyiceberg's catalog `here`, by its variables of the environment."""
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HERE__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read at import


def here(root: Path, monkeypatch: pytest.MonkeyPatch, store: str = "") -> Catalog:
    """A catalog in SQLite. Its tables lie below `root`, or below the URL of a place on S3."""
    (root / "warehouse").mkdir()
    warehouse = store or f"file://{root}/warehouse"
    configure(monkeypatch, type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=warehouse)
    if store:
        configure(
            monkeypatch,
            s3__endpoint=os.environ["AWS_ENDPOINT_URL"],
            s3__region=os.environ["AWS_REGION"],
            s3__access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
            s3__secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        )
    return load_catalog("here")


class IcebergLake:
    """`spec` maps columns to transforms. The table's files lie below `root`, or below `store`, the URL of a place on
    S3. `rest` is the address of a REST catalog, instead of one in SQLite; `database` is the table's namespace.
    `properties` are those of the table, such as its format version."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        spec: Mapping[str, Transform[Any, Any]] | None = None,
        store: str = "",
        rest: str = "",
        database: str = "db",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if rest:
            configure(monkeypatch, type="rest", uri=rest)
        self.catalog: Catalog = load_catalog("here") if rest else here(root, monkeypatch, store)
        self.identifier = f"{database}.t"
        self.name = f"iceberg:here.{self.identifier}"
        self.catalog.create_namespace(database)
        made = self.catalog.create_table(self.identifier, ROWS, properties=dict(properties or {}))
        with made.update_spec() as update:
            for column, transform in (spec or {}).items():
                update.add_field(column, transform)
        self.root = made.location().removeprefix("file://")
        if all(isinstance(one, IdentityTransform) for one in (spec or {}).values()):
            self.append(rows(0, 40))
            made.refresh().delete("id in (7, 8)")

    def table(self) -> Table:
        return self.catalog.load_table(self.identifier)

    def append(self, table: pa.Table) -> None:
        self.table().append(table)

    def delete(self, number: int) -> None:
        self.table().delete(f"id == {number}")

    def compact(self) -> None:
        table = self.table()
        table.overwrite(table.scan().to_arrow())

    def retype(self) -> None:
        with self.table().update_schema() as update:
            update.delete_column("info")
        with self.table().update_schema() as update:
            update.add_column("info", StringType())

    def widen(self) -> None:
        with self.table().update_schema() as update:
            update.add_column("added", StringType())

    def rows(self) -> list[dict[str, Any]]:
        return plain(self.table().scan().to_arrow().sort_by("id").to_pylist())

    def files(self) -> list[str]:
        return [task.file.file_path for task in self.table().scan().plan_files()]

    def appends(self) -> list[str]:
        summaries = [one.summary for one in reversed(self.table().snapshots()) if one.summary is not None]
        return [str(one["gnomon.append"]) for one in summaries if "gnomon.append" in one.additional_properties]


class IcebergUpgraded(IcebergLake):
    """A table of a REST catalog that was made with version 2 and upgraded to version 3, in which pyiceberg writes no
    files."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, rest: str) -> None:
        super().__init__(root, monkeypatch, rest=rest, database=root.name.replace("-", "_"))
        self.catalog.commit_table(self.table(), (), (UpgradeFormatVersionUpdate(format_version=3),))

    def append(self, table: pa.Table) -> None:
        if self.table().format_version == 3:
            pytest.skip("pyiceberg appends no rows to tables of version 3")
        super().append(table)

    def delete(self, number: int) -> None:
        pytest.skip("pyiceberg deletes no rows of tables of version 3")

    def compact(self) -> None:
        pytest.skip("pyiceberg rewrites no files of tables of version 3")


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose maps are dicts."""
    for one in found:
        info = one.get("info")
        if isinstance(info, dict) and isinstance(info["counts"], list):
            info["counts"] = dict(info["counts"])
    return found
