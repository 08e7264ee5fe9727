"""Runs the operations on one table and keeps, for each version, the rows that Spark reads."""

import json
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tests.golden.tables import PLACE
from tests.golden.tables.values import exact_rows


class Recorder:
    """A table at `PLACE/<name>-<8 hexadecimal digits>/table`, and its truth beside it. The digits are new each time
    the table is made: two checkouts with other copies of a table do not disturb each other."""

    format: str
    key: tuple[str, ...]  # the columns that tell rows apart, in the versions from now on

    def __init__(self, spark: SparkSession, name: str, about: str, key: tuple[str, ...] = ("id",)) -> None:
        self.spark = spark
        self.name = name
        self.about = about
        self.key = key
        self.folder = Path(PLACE) / f"{name}-{secrets.token_hex(4)}"
        self.path = self.folder / "table"
        self.versions: list[dict[str, Any]] = []
        (self.folder / "truth").mkdir(parents=True)

    def __call__(self, operation: str, *statements: str) -> None:
        """Run SQL statements, in which {t} is the table and {path} its folder, and keep the rows of each new version
        under the name of the operation."""
        for statement in statements:
            self.spark.sql(statement.replace("{t}", self.identifier).replace("{path}", str(self.path)))
        self.record(operation)

    @property
    def identifier(self) -> str:
        raise NotImplementedError

    def record(self, operation: str) -> None:
        raise NotImplementedError

    def keep(self, operation: str, version: int, metadata: str, read: DataFrame) -> None:
        """Keep the rows of one version as JSON lines, and its columns and key in the list of versions."""
        rows = exact_rows(read.toArrow(), self.key)
        truth = f"truth/{len(self.versions):02}.jsonl"
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
        (self.folder / truth).write_text("".join(lines), encoding="utf-8")
        self.versions.append(
            {
                "version": version,
                "operation": operation,
                "key": list(self.key),
                "metadata": metadata,
                "rows": len(rows),
                "truth": truth,
                "gone": False,
                "columns": {field.name: field.dataType.simpleString() for field in read.schema.fields},
            }
        )

    def mark_gone(self) -> None:
        """Mark the versions that the table's own reader reads no more: VACUUM or an expiry deleted files of theirs."""
        for version in self.versions:
            version["gone"] = not self.is_there(version["version"])

    def is_there(self, version: int) -> bool:
        raise NotImplementedError

    def description(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": self.format,
            "about": self.about,
            "folder": self.folder.name,
            "versions": self.versions,
        }


class DeltaRecorder(Recorder):
    """A Delta table, named by its path."""

    format = "delta"

    @property
    def identifier(self) -> str:
        return f"delta.`{self.path}`"

    def record(self, operation: str) -> None:
        """Keep each version since the last operation: one operation may make several."""
        newest = self.spark.sql(f"DESCRIBE HISTORY {self.identifier}").selectExpr("max(version)").first()[0]
        for version in range(len(self.versions), newest + 1):
            self.keep(operation, version, "", self.as_of(version))

    def as_of(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(str(self.path))

    def is_there(self, version: int) -> bool:
        try:
            self.as_of(version).toArrow()
        except Py4JJavaError as error:
            if "FAILED_READ_FILE" not in str(error):
                raise
            return False
        return True


class IcebergRecorder(Recorder):
    """An Iceberg table of the catalog `lake`. Each operation makes one version: the metadata file that is current
    after it, and the snapshot that is current there (-1: none)."""

    format = "iceberg"

    @property
    def identifier(self) -> str:
        return f"lake.db.{self.name}"

    def table(self) -> Any:
        """Iceberg's own Java object of the table."""
        load = self.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        return load(self.spark._jsparkSession, self.identifier)

    def record(self, operation: str) -> None:
        table = self.table()
        snapshot = table.currentSnapshot()
        version = -1 if snapshot is None else snapshot.snapshotId()
        location = table.operations().current().metadataFileLocation().removeprefix("file:")
        metadata = str(Path(location).relative_to(self.path))
        if self.versions and metadata == self.versions[-1]["metadata"]:
            raise ValueError(f"{self.name}: the operation {operation!r} changed nothing")
        read = self.spark.table(self.identifier)
        self.keep(operation, version, metadata, read)
        if snapshot is not None:
            self.check_as_of(version, read)

    def check_as_of(self, version: int, read: DataFrame) -> None:
        """Raise ValueError if Spark reads other rows as of the snapshot. A snapshot keeps the schema of its time: the
        columns are compared only where they are the same."""
        as_of = self.spark.read.option("versionAsOf", version).table(self.identifier)
        if as_of.schema == read.schema and not same_rows(as_of.toArrow(), read.toArrow(), self.key):
            raise ValueError(f"{self.name}: Spark reads other rows as of snapshot {version}")

    def is_there(self, version: int) -> bool:
        return version == -1 or self.table().snapshot(version) is not None


def same_rows(one: pa.Table, other: pa.Table, key: tuple[str, ...]) -> bool:
    return exact_rows(one, key) == exact_rows(other, key)
