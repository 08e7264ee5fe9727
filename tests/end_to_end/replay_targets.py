"""What a replay appends to: a folder of Parquet files, or a Delta or Iceberg table, which other programs change."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from tests.end_to_end.dedup_child import STEPS, TABLE_STEPS

SCHEMA = pa.schema([("url", pa.string()), ("n", pa.int64()), ("payload", pa.string()), ("dt", pa.string())])
FOREIGN_ATTEMPTS = 20  # of another program's commit to a table

Key = tuple[str | None, int | None]
Row = tuple[str | None, int | None, str, str]


class Target(Protocol):
    """A source. `name` is the one for a build, `staging` the folder in which appends stage their files, `steps` are the
    steps of an append to kill at. `rows` are those of the last look. `columns` has the source's columns, each with the
    column of a delivery that it takes, or None for nulls. `changes` are the changes that other programs make while
    appends run or between them, `quiet_changes` those that they make between them alone."""

    name: str
    staging: Path
    steps: Sequence[str]
    rows: list[Row]

    @property
    def columns(self) -> dict[str, str | None]: ...

    @property
    def changes(self) -> Mapping[str, Callable[[], object]]: ...

    @property
    def quiet_changes(self) -> Mapping[str, Callable[[], object]]: ...

    def write_first(self, rows: Sequence[Row]) -> None: ...

    def look(self) -> Iterator[str]:
        """Read the rows by the source's own reader, and yield the faults."""

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows as another program."""

    def delete(self, keys: Sequence[Key]) -> None:
        """Delete the rows of keys without nulls as another program."""


class Folder:
    """A folder of Parquet files. Each look reads the new files; no file may change."""

    def __init__(self, root: Path) -> None:
        self.root, self.name, self.staging = root, str(root), root / "_gnomon"
        self.steps = [step for step in STEPS if step not in TABLE_STEPS]
        self.columns: dict[str, str | None] = {name: name for name in SCHEMA.names}
        self.changes: Mapping[str, Callable[[], object]] = {}
        self.quiet_changes: Mapping[str, Callable[[], object]] = {}
        self.files: dict[str, tuple[int, int]] = {}
        self.rows: list[Row] = []

    def write_first(self, rows: Sequence[Row]) -> None:
        folders: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            folders[row[3]].append(row)
        for when, of_day in folders.items():
            (self.root / f"dt={when}").mkdir(parents=True)
            pq.write_table(as_table(of_day).drop_columns("dt"), self.root / f"dt={when}/first.parquet")

    def append(self, rows: Sequence[Row]) -> None:
        raise NotImplementedError

    def delete(self, keys: Sequence[Key]) -> None:
        raise NotImplementedError

    def look(self) -> Iterator[str]:
        seen = {str(path.relative_to(self.root)): path for path in self.root.rglob("*.parquet")}
        seen = {name: path for name, path in seen.items() if "/_" not in f"/{name}"}
        yield from (f"{name} is gone" for name in self.files.keys() - seen.keys())
        for name, path in sorted(seen.items()):
            status = path.stat()
            fingerprint = status.st_size, status.st_mtime_ns
            if name in self.files:
                if self.files[name] != fingerprint:
                    yield f"{name} was changed"
                continue
            self.files[name] = fingerprint
            try:
                table = pq.ParquetFile(path).read()
            except (pa.ArrowException, OSError) as error:
                yield f"{name} cannot be read: {error}"
                continue
            value = path.parent.name.removeprefix("dt=")
            self.rows += zip(*[column.to_pylist() for column in table.columns], [value] * len(table), strict=True)


class _LakeTable:
    """A table whose payload is renamed at times, and which gets columns of nulls."""

    steps = tuple(STEPS)

    def __init__(self, name: str) -> None:
        self.name, self.payload, self.added, self.names = name, "payload", list[str](), 0
        self.rows: list[Row] = []

    @property
    def columns(self) -> dict[str, str | None]:
        return {"url": "url", "n": "n", self.payload: "payload", "dt": "dt", **dict.fromkeys(self.added)}

    def new_name(self) -> str:
        self.names += 1
        return f"column_{self.names}"

    def read(self, names: Sequence[str]) -> pa.Table:
        raise NotImplementedError

    def look(self) -> Iterator[str]:
        try:
            table = self.read(["url", "n", self.payload, "dt"])
        except Exception as error:  # noqa: BLE001  a table that cannot be read is a fault, whatever the reason
            yield f"the table cannot be read: {type(error).__name__}: {error}"
            return
        self.rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def as_written(self, rows: Sequence[Row]) -> pa.Table:
        """Rows with the columns of the table."""
        table = as_table(rows).rename_columns(["url", "n", self.payload, "dt"])
        for name in self.added:
            table = table.append_column(name, pa.nulls(len(rows), pa.string()))
        return table.select(list(self.columns))


class DeltaTarget(_LakeTable):
    """A Delta table, partitioned by day."""

    def __init__(self, root: Path) -> None:
        super().__init__(f"delta:{root}")
        self.root, self.staging = str(root), root / "_gnomon"
        self.changes = {
            "compaction": lambda: self._again(lambda table: table.optimize.compact()),
            "new column": self._add_column,
        }
        self.quiet_changes = {
            "renamed column, all rows rewritten": self._rename_column,
            "vacuum": self._vacuum,
        }

    def write_first(self, rows: Sequence[Row]) -> None:
        write_deltalake(self.root, as_table(rows), partition_by=["dt"])

    def read(self, names: Sequence[str]) -> pa.Table:
        return DeltaTable(self.root).to_pyarrow_table(columns=list(names))

    def append(self, rows: Sequence[Row]) -> None:
        self._again(lambda table: write_deltalake(table, self.as_written(rows), mode="append"))

    def delete(self, keys: Sequence[Key]) -> None:
        where = " or ".join(f"(url = '{url}' and n = {n})" for url, n in keys)
        self._again(lambda table: table.delete(where))

    def _again(self, change: Callable[[DeltaTable], object]) -> None:
        for attempt in range(FOREIGN_ATTEMPTS):
            try:
                change(DeltaTable(self.root))
            except CommitFailedError:
                if attempt + 1 == FOREIGN_ATTEMPTS:
                    raise
            else:
                return

    def _add_column(self) -> None:
        name = self.new_name()
        column = Field(name, PrimitiveType("string"), nullable=True)
        self._again(lambda table: table.alter.add_columns([column]))
        self.added.append(name)

    def _rename_column(self) -> None:
        rows = DeltaTable(self.root).to_pyarrow_table()
        name = self.new_name()
        renamed = rows.rename_columns([name if one == self.payload else one for one in rows.column_names])
        write_deltalake(self.root, renamed, mode="overwrite", schema_mode="overwrite", partition_by=["dt"])
        self.payload = name

    def _vacuum(self) -> None:
        table = DeltaTable(self.root)
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)


class IcebergTarget(_LakeTable):
    """An Iceberg table of a catalog on this machine, partitioned by day."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(f"iceberg:{catalog.name}.db.t")
        self.catalog = catalog
        self.catalog.create_namespace("db")
        made = self.catalog.create_table("db.t", SCHEMA)
        with made.update_spec() as update:
            update.add_field("dt", IdentityTransform())
        self.root = Path(made.location().removeprefix("file://"))
        self.staging = self.root / "_gnomon"
        self.changes = {"compaction": self._compact, "new column": self._add_column, "expiry": self._expire}
        self.quiet_changes = {"renamed column": self._rename_column, "removal of orphan files": self._remove_orphans}

    def write_first(self, rows: Sequence[Row]) -> None:
        self.catalog.load_table("db.t").append(as_table(rows))

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.catalog.load_table("db.t").scan(selected_fields=tuple(names)).to_arrow().select(list(names))

    def append(self, rows: Sequence[Row]) -> None:
        self._again(lambda table: table.append(self.as_written(rows).cast(table.schema().as_arrow())))

    def delete(self, keys: Sequence[Key]) -> None:
        for url, n in keys:
            self._again(lambda table, url=url, n=n: table.delete(And(EqualTo("url", url), EqualTo("n", n))))

    def _again(self, change: Callable[[Table], object]) -> None:
        """Change the table by a commit to the version that was read: pyiceberg's own retries are off."""
        for attempt in range(FOREIGN_ATTEMPTS):
            table = self.catalog.load_table("db.t")
            table.metadata.properties["commit.retry.num-retries"] = "0"
            try:
                change(table)
            except (CommitFailedException, ValidationException):
                if attempt + 1 == FOREIGN_ATTEMPTS:
                    raise
            else:
                return

    def _compact(self) -> None:
        self._again(lambda table: table.overwrite(table.scan().to_arrow()))

    def _add_column(self) -> None:
        name = self.new_name()
        self._again(lambda table: table.update_schema().add_column(name, StringType()).commit())
        self.added.append(name)

    def _rename_column(self) -> None:
        name = self.new_name()
        self._again(lambda table: table.update_schema().rename_column(self.payload, name).commit())
        self.payload = name

    def _expire(self) -> None:
        def expire(table: Table) -> None:
            old = [
                one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.metadata.current_snapshot_id
            ]
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()

        self._again(expire)

    def _remove_orphans(self) -> None:
        """Expire all snapshots but the newest one, and remove the data files that it does not name, of any age."""
        self._expire()
        named = {task.file.file_path for task in self.catalog.load_table("db.t").scan().plan_files()}
        for path in (self.root / "data").rglob("*.parquet"):
            if f"file://{path}" not in named:
                os.unlink(path)


def as_table(rows: Sequence[Row]) -> pa.Table:
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in SCHEMA]
    return pa.table(columns, schema=SCHEMA)
