"""What a replay appends to: a folder of Parquet files, or a Delta or Iceberg table, which other programs change."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.query import QueryBuilder
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysFalse, And, EqualTo, Or
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType
from pyroaring import BitMap64

from gnomon.shadow.tables import NewFile, TableCommit, commit_change, commit_to_table, lake_source
from gnomon.shadow.tables.lake_append import Deleted
from tests.end_to_end.dedup_child import CHANGE_STEPS, STEPS, TABLE_STEPS

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


class Made(NamedTuple):
    """A version of a table, and who made it: the mark of a commit of Gnomon, with the attempt that it names, or the tag
    of a change by another program (`LakeTable.tag`)."""

    version: str
    parent: str
    append: str
    attempt: str
    tag: str


class LakeTable:
    """A table whose payload is renamed at times, and which gets columns of nulls. `tag` is put into the history by the
    next change of another program."""

    root: Path | str
    staging: Path
    changes: Mapping[str, Callable[[], object]]
    quiet_changes: Mapping[str, Callable[[], object]]
    steps = tuple(step for step in STEPS if step not in CHANGE_STEPS)
    tag = ""

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

    def versions(self) -> list[Made]:
        """The versions that the table knows, the oldest first."""
        raise NotImplementedError

    def head(self) -> str:
        """The version that is read now."""
        raise NotImplementedError

    def at(self, version: str) -> list[Row]:
        """The rows of a version, by the table's own reader."""
        raise NotImplementedError

    def merge(self, rows: Sequence[Row]) -> None:
        """Replace the rows of keys, and add those whose key is new, as another program."""
        raise NotImplementedError

    def go_back(self, version: str) -> None:
        """Make an older version the newest, as another program."""
        raise NotImplementedError

    def expire(self, versions: Sequence[str]) -> None:
        """Forget older versions, as another program."""
        raise NotImplementedError

    def files(self) -> int:
        raise NotImplementedError

    def named_files(self, attempts: Iterable[str]) -> Iterator[str]:
        """Patterns of the paths, below the root, of the files that attempts keep which did commit."""
        raise NotImplementedError

    def polars(self) -> list[Row]:
        """The newest rows by Polars' reader."""
        raise NotImplementedError

    def as_written(self, rows: Sequence[Row]) -> pa.Table:
        """Rows with the columns of the table."""
        table = as_table(rows).rename_columns(["url", "n", self.payload, "dt"])
        for name in self.added:
            table = table.append_column(name, pa.nulls(len(rows), pa.string()))
        return table.select(list(self.columns))


class DeltaTarget(LakeTable):
    """A Delta table, partitioned by day."""

    def __init__(self, root: Path, configuration: Mapping[str, str] | None = None) -> None:
        super().__init__(f"delta:{root}")
        self.root, self.staging = str(root), root / "_gnomon"
        self.configuration = dict(configuration or {})
        self.changes = {
            "compaction": lambda: self._again(
                lambda table: table.optimize.compact(commit_properties=self._properties())
            ),
            "new column": self._add_column,
        }
        self.quiet_changes = {
            "renamed column, all rows rewritten": self._rename_column,
            "vacuum": self._vacuum,
        }

    def write_first(self, rows: Sequence[Row]) -> None:
        write_deltalake(self.root, as_table(rows), partition_by=["dt"], configuration=self.configuration)

    def read(self, names: Sequence[str], version: str | None = None) -> pa.Table:
        table = DeltaTable(self.root, version=None if version is None else int(version))
        found = QueryBuilder().register("t", table).execute(f"select {', '.join(names)} from t").read_all()
        return pa.table(found)

    def append(self, rows: Sequence[Row]) -> None:
        self._again(
            lambda table: write_deltalake(
                table, self.as_written(rows), mode="append", commit_properties=self._properties()
            )
        )

    def delete(self, keys: Sequence[Key]) -> None:
        where = " or ".join(f"(url = '{url}' and n = {n})" for url, n in keys)
        self._again(lambda table: table.delete(where, commit_properties=self._properties()))

    def merge(self, rows: Sequence[Row]) -> None:
        where = "t.url = s.url and t.n = s.n"
        self._again(
            lambda table: (
                table.merge(self.as_written(rows), where, "s", "t", commit_properties=self._properties())
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        )

    def go_back(self, version: str) -> None:
        self._again(
            lambda table: (
                table.version() == int(version) or table.restore(int(version), commit_properties=self._properties())
            )
        )
        names = [field.name for field in DeltaTable(self.root).schema().fields]  # a version has its columns
        self.added = [name for name in names if name not in SCHEMA.names]

    def versions(self) -> list[Made]:
        return [
            Made(
                str(one["version"]),
                str(one["version"] - 1),
                one.get("gnomon.append", ""),
                one.get("gnomon.attempt", ""),
                one.get("replay.change", ""),
            )
            for one in reversed(DeltaTable(self.root).history())
        ]

    def head(self) -> str:
        return str(DeltaTable(self.root).version())

    def at(self, version: str) -> list[Row]:
        return as_rows(self.read(SCHEMA.names, version))

    def files(self) -> int:
        return len(DeltaTable(self.root).file_uris())

    def named_files(self, attempts: Iterable[str]) -> Iterator[str]:
        for one in attempts:
            yield f"gnomon*/deletion_vector_{one}.bin"
            yield f"gnomon*/{one}/**/*.parquet"

    def polars(self) -> list[Row]:
        return as_rows(polars.scan_delta(self.root).select(SCHEMA.names).collect().to_arrow())

    def _properties(self) -> CommitProperties:
        return CommitProperties(custom_metadata={"replay.change": self.tag})

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
        self._again(lambda table: table.alter.add_columns([column], commit_properties=self._properties()))
        self.added.append(name)

    def _rename_column(self) -> None:
        rows = DeltaTable(self.root).to_pyarrow_table()
        name = self.new_name()
        renamed = rows.rename_columns([name if one == self.payload else one for one in rows.column_names])
        write_deltalake(self.root, renamed, mode="overwrite", schema_mode="overwrite", partition_by=["dt"])
        self.payload = name

    def _vacuum(self) -> None:
        table = DeltaTable(self.root)
        has_vectors = "delta.enableDeletionVectors" in self.configuration  # of which a full vacuum removes live ones
        table.vacuum(
            retention_hours=0,
            enforce_retention_duration=False,
            dry_run=False,
            full=not has_vectors,
            commit_properties=self._properties(),
        )


class IcebergTarget(LakeTable):
    """An Iceberg table of a catalog on this machine, partitioned by day."""

    def __init__(self, catalog: Catalog, properties: Mapping[str, str] | None = None, database: str = "db") -> None:
        self.catalog, self.identifier = catalog, f"{database}.t"
        super().__init__(f"iceberg:{catalog.name}.{self.identifier}")
        self.catalog.create_namespace(database)
        made = self.catalog.create_table(self.identifier, SCHEMA, properties=dict(properties or {}))
        with made.update_spec() as update:
            update.add_field("dt", IdentityTransform())
        self.root = Path(made.location().removeprefix("file://"))
        self.staging = self.root / "_gnomon"
        self.changes = {"compaction": self._compact, "new column": self._add_column, "expiry": self._expire}
        self.quiet_changes = {"renamed column": self._rename_column, "removal of orphan files": self._remove_orphans}

    def write_first(self, rows: Sequence[Row]) -> None:
        self.table().append(as_table(rows))

    def table(self) -> Table:
        return self.catalog.load_table(self.identifier)

    def read(self, names: Sequence[str], version: str | None = None) -> pa.Table:
        number = None if version is None else int(version)
        scan = self.table().scan(selected_fields=tuple(names), snapshot_id=number)
        return scan.to_arrow().select(list(names))

    def append(self, rows: Sequence[Row]) -> None:
        self._again(lambda table: table.append(self._as_table(rows, table), self._properties()))

    def delete(self, keys: Sequence[Key]) -> None:
        where: Any = AlwaysFalse()
        for url, n in keys:
            where = Or(where, And(EqualTo("url", url), EqualTo("n", n)))
        self._again(lambda table: table.delete(where, self._properties()))

    def merge(self, rows: Sequence[Row]) -> None:
        def merge(table: Table) -> None:
            head = table.current_snapshot()
            if head is None or head.schema_id != table.metadata.current_schema_id:
                return  # pyiceberg reads the table with the columns of the snapshot, and then misses the new ones
            table.upsert(self._as_table(rows, table), ["url", "n"], snapshot_properties=self._properties())

        self._again(merge)

    def go_back(self, version: str) -> None:
        self._again(lambda table: table.manage_snapshots().set_current_snapshot(int(version)).commit())

    def versions(self) -> list[Made]:
        found = []
        for one in self.table().snapshots():
            said = one.summary.additional_properties if one.summary is not None else {}
            marks = [said.get(name, "") for name in ("gnomon.append", "gnomon.attempt", "replay.change")]
            found.append(Made(str(one.snapshot_id), str(one.parent_snapshot_id or ""), *marks))
        return found

    def head(self) -> str:
        return str(self.table().metadata.current_snapshot_id)

    def at(self, version: str) -> list[Row]:
        return as_rows(self.read(SCHEMA.names, version))

    def files(self) -> int:
        return len(list(self.table().scan().plan_files()))

    def named_files(self, attempts: Iterable[str]) -> Iterator[str]:
        for one in attempts:
            yield f"data/gnomon-*/{one}/*"

    def polars(self) -> list[Row]:
        found = polars.scan_iceberg(self.table()).select(SCHEMA.names).collect()
        return as_rows(found.to_arrow())

    def _as_table(self, rows: Sequence[Row], table: Table) -> pa.Table:
        return self.as_written(rows).cast(table.schema().as_arrow())

    def _properties(self) -> dict[str, str]:
        return {"replay.change": self.tag}

    def _again(self, change: Callable[[Table], object]) -> None:
        """Change the table by a commit to the version that was read: pyiceberg's own retries are off."""
        for attempt in range(FOREIGN_ATTEMPTS):
            table = self.table()
            table.metadata.properties["commit.retry.num-retries"] = "0"
            try:
                change(table)
            except (CommitFailedException, ValidationException):
                if attempt + 1 == FOREIGN_ATTEMPTS:
                    raise
            else:
                return

    def _compact(self) -> None:
        self._again(lambda table: table.overwrite(table.scan().to_arrow(), snapshot_properties=self._properties()))

    def _add_column(self) -> None:
        name = self.new_name()
        self._again(lambda table: table.update_schema().add_column(name, StringType()).commit())
        self.added.append(name)

    def _rename_column(self) -> None:
        name = self.new_name()
        self._again(lambda table: table.update_schema().rename_column(self.payload, name).commit())
        self.payload = name

    def _expire(self) -> None:
        self.expire([str(one.snapshot_id) for one in self.table().snapshots()])

    def expire(self, versions: Sequence[str]) -> None:
        def expire(table: Table) -> None:
            known = {one.snapshot_id for one in table.snapshots()} - {table.metadata.current_snapshot_id}
            if old := sorted(known & set(map(int, versions))):
                table.maintenance.expire_snapshots().by_ids(old).commit()

        self._again(expire)

    def _remove_orphans(self) -> None:
        """Expire all snapshots but the newest one, and remove the data files that it does not name, of any age."""
        self._expire()
        named = {
            file.file_path for task in self.table().scan().plan_files() for file in (task.file, *task.delete_files)
        }
        for path in (self.root / "data").rglob("*.parquet"):
            if f"file://{path}" not in named:
                os.unlink(path)


class Iceberg3Target(IcebergTarget):
    """A table of version 3. pyiceberg writes no manifests of it, so that another writer of Gnomon is the other program;
    its numbers are the tags."""

    def __init__(self, catalog: Catalog, properties: Mapping[str, str], database: str) -> None:
        super().__init__(catalog, {**properties, "format-version": "3"}, database)
        self.changes = {name: change for name, change in self.changes.items() if name != "compaction"}

    def write_first(self, rows: Sequence[Row]) -> None:
        self.tag = "1"
        self.append(rows)

    def append(self, rows: Sequence[Row]) -> None:
        commit_to_table(self._planned(), self._new_files(rows))

    def delete(self, keys: Sequence[Key]) -> None:
        commit_change(self._planned(), [], partial(self._look, keys))

    def merge(self, rows: Sequence[Row]) -> None:
        commit_change(self._planned(), self._new_files(rows), partial(self._look, [row[:2] for row in rows]))

    def versions(self) -> list[Made]:
        return [
            one._replace(append="", tag=one.append.removeprefix("foreign/"))
            if one.append.startswith("foreign/")
            else one
            for one in super().versions()
        ]

    def polars(self) -> list[Row]:
        return self.at(self.head())  # Polars takes the vectors of all files that share a Puffin file for those of one

    def _planned(self) -> TableCommit:
        uuid = str(self.table().metadata.table_uuid)
        return TableCommit(self.name, uuid, "foreign", int(self.tag), ())

    def _new_files(self, rows: Sequence[Row]) -> list[NewFile]:
        """New files of rows, one for each day."""
        files, days = list[NewFile](), defaultdict[str, list[Row]](list)
        for row in rows:
            days[row[3]].append(row)
        for when, of_day in days.items():
            path = f"data/dt={when}/foreign-{self.tag}.parquet"
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(self._as_table(of_day, self.table()), self.root / path, store_schema=False)
            files.append(NewFile(path, (self.root / path).stat().st_size, len(of_day), f"dt={when}"))
        return files

    def _look(self, keys: Sequence[Key]) -> Deleted:
        """Find the rows of keys by a scan of the data files."""
        content, found = lake_source(self.name).content, dict[str, BitMap64]()
        dead = content.deleted()
        for path in content.files:
            rows = pq.read_table(f"{content.root}/{path}", columns=["url", "n"], partitioning=None).to_pylist()
            numbers = [at for at, row in enumerate(rows) if (row["url"], row["n"]) in set(keys)]
            if hits := BitMap64(numbers) - dead.get(path, BitMap64()):
                found[path] = hits
        return Deleted(content.version, found)


def as_rows(table: pa.Table) -> list[Row]:
    return list(zip(*(table[name].to_pylist() for name in SCHEMA.names), strict=True))


def as_table(rows: Sequence[Row]) -> pa.Table:
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in SCHEMA]
    return pa.table(columns, schema=SCHEMA)
