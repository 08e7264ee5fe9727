"""Delta and Iceberg tables under random operations of Spark: deletion vectors, position deletes, merges, compaction,
columns that come, go and change their names, restored versions, expired ones."""

import random
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from tests.golden.tables.session import CATALOG, SparkBeside

KEYS = 400
REST = "behind"  # the name of a REST catalog
DAYS = ["2026-01-01", "a b", "50%", "é/x"]
Row = dict[str, Any]


class SparkTable:
    """A table of Spark: `id`, `name`, `day`, and columns of numbers that come and go. `name` is that of the source."""

    name: str

    def __init__(self, spark: SparkBeside, sql_name: str) -> None:
        self._spark, self._sql_name = spark, sql_name
        self._added = 0

    def rows(self, where: str = "true", version: str = "") -> list[Row]:
        at = f" VERSION AS OF {version}" if version else ""
        return self._spark.run(f"SELECT * FROM {self._sql_name}{at} WHERE {where}")

    def columns(self) -> list[str]:
        described = [one["col_name"] for one in self._spark.run(f"DESCRIBE {self._sql_name}")]
        return list(takewhile(lambda name: name and name[0] != "#", described))  # then come the partitions

    def sql(self, statement: str) -> None:
        """Run a statement, with `{t}` for the table."""
        self._spark.run(statement.replace("{t}", self._sql_name))

    def change(self, chance: random.Random) -> str:
        """Make a random change. Returns its name."""
        changes = self.changes()
        name = chance.choice(list(changes))
        changes[name](chance)
        return name

    def changes(self) -> dict[str, Callable[[random.Random], None]]:
        return {
            "append": lambda chance: self.sql(f"INSERT INTO {{t}} {self._values(chance)}"),
            "append twice": lambda chance: [self.sql(f"INSERT INTO {{t}} {self._values(chance)}") for _ in "12"],
            "delete": self._delete,
            "delete few": lambda chance: self.sql(f"DELETE FROM {{t}} WHERE id % 37 = {chance.randrange(37)}"),
            "update": lambda chance: self.sql(
                f"UPDATE {{t}} SET name = 'updated {chance.randrange(99)}' WHERE id % 23 = {chance.randrange(23)}"
            ),
            "move": lambda chance: self.sql(
                f"UPDATE {{t}} SET day = '{chance.choice(DAYS)}' WHERE id % 29 = {chance.randrange(29)}"
            ),
            "merge": self._merge,
            "add a column": self._add_column,
            "rename a column": self._rename_column,
            "drop a column": self._drop_column,
        }

    def _values(self, chance: random.Random, distinct: bool = False) -> str:
        """A SELECT of random rows with all columns of the table."""
        names, rows = self.columns(), []
        count = chance.randrange(1, 40)
        ids = chance.sample(range(KEYS), count) if distinct else [chance.randrange(KEYS) for _ in range(count)]
        for number in ids:
            own = {"id": str(number), "name": f"'n{chance.randrange(1000)}'", "day": f"'{chance.choice(DAYS)}'"}
            own |= {"name": "NULL"} if chance.random() < 0.05 else {}
            rows.append(f"({', '.join(own.get(name, str(chance.randrange(9))) for name in names)})")
        return f"SELECT * FROM VALUES {', '.join(rows)} AS v({', '.join(names)})"

    def _delete(self, chance: random.Random) -> None:
        low = chance.randrange(KEYS)
        self.sql(f"DELETE FROM {{t}} WHERE id BETWEEN {low} AND {low + chance.randrange(40)}")

    def _merge(self, chance: random.Random) -> None:
        self.sql(
            f"MERGE INTO {{t}} t USING ({self._values(chance, distinct=True)}) s ON t.id = s.id "
            "WHEN MATCHED AND t.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.name = s.name "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def _others(self) -> list[str]:
        return [name for name in self.columns() if name not in ("id", "name", "day")]

    def _add_column(self, chance: random.Random) -> None:
        if len(self._others()) < 4:
            self._added += 1
            self.sql(f"ALTER TABLE {{t}} ADD COLUMNS (c{self._added} INT)")

    def _rename_column(self, chance: random.Random) -> None:
        if others := self._others():
            self._added += 1
            self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {chance.choice(others)} TO c{self._added}")

    def _drop_column(self, chance: random.Random) -> None:
        if others := self._others():
            self.sql(f"ALTER TABLE {{t}} DROP COLUMN {chance.choice(others)}")


class DeltaOfSpark(SparkTable):
    """A partitioned Delta table with deletion vectors, and columns mapped by `mapping`."""

    def __init__(self, spark: SparkBeside, folder: Path, mapping: str = "name", vectors: bool = True) -> None:
        place = folder.absolute() / "delta"
        super().__init__(spark, f"delta.`{place}`")
        self.name, self._mapping = f"delta:{place}", mapping
        self.sql(
            "CREATE TABLE {t} (id BIGINT, name STRING, day STRING) USING delta PARTITIONED BY (day) TBLPROPERTIES "
            f"('delta.enableDeletionVectors' = '{str(vectors).lower()}', 'delta.columnMapping.mode' = '{mapping}')"
        )

    def changes(self) -> dict[str, Callable[[random.Random], None]]:
        known = super().changes()
        if self._mapping == "none":
            del known["rename a column"], known["drop a column"]
        return known | {
            "compact": lambda _: self.sql("OPTIMIZE {t}"),
            "purge": lambda _: self.sql("REORG TABLE {t} APPLY (PURGE)"),
            "expire": lambda _: self.sql("VACUUM {t} RETAIN 0 HOURS"),
            "overwrite a day": lambda chance: self.sql(
                f"INSERT OVERWRITE {{t}} PARTITION (day = '{chance.choice(DAYS)}') "
                f"SELECT {', '.join(name for name in self.columns() if name != 'day')} FROM ({self._values(chance)})"
            ),
        }


class IcebergOfSpark(SparkTable):
    """An Iceberg table of a format version, which deletes rows by `mode`, and whose partitions evolve. `settings` are
    those of its catalog: in SQLite, or at the address `rest`, in a namespace of its own."""

    def __init__(
        self, spark: SparkBeside, folder: Path, format_version: int, mode: str = "merge-on-read", rest: str = ""
    ) -> None:
        place, self.catalog = folder.absolute(), REST if rest else CATALOG
        self._table = f"n{abs(hash(folder))}.t" if rest else "ns.t"
        super().__init__(spark, f"{self.catalog}.{self._table}")
        self.name = f"iceberg:{self.catalog}.{self._table}"
        own = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}
        self.settings = {"type": "rest", "uri": rest} if rest else own
        self._catalog: Catalog = load_catalog(self.catalog, **self.settings)
        spark.run(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.{self._table.removesuffix('.t')}")
        kinds = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("delete", "update", "merge"))
        self.sql(
            "CREATE TABLE {t} (id BIGINT, name STRING, day STRING) USING iceberg PARTITIONED BY (bucket(3, id)) "
            f"TBLPROPERTIES ('format-version' = '{format_version}', {kinds})"
        )

    def _call(self, procedure: str, *arguments: str) -> None:
        given = ", ".join([f"table => '{self._table}'", *arguments])
        self._spark.run(f"CALL {self.catalog}.system.{procedure}({given})")

    def changes(self) -> dict[str, Callable[[random.Random], None]]:
        return super().changes() | {
            "compact": lambda _: self._call("rewrite_data_files", "options => map('rewrite-all', 'true')"),
            "compact some": lambda _: self._call("rewrite_data_files", "options => map('min-input-files', '2')"),
            "compact deletes": lambda _: self._call(
                "rewrite_position_delete_files", "options => map('rewrite-all', 'true')"
            ),
            "rewrite manifests": lambda _: self._call("rewrite_manifests"),
            "expire": lambda _: self._call("expire_snapshots", "older_than => now()", "retain_last => 2"),
            "roll back": self._roll_back,
            "other partitions": self._other_partitions,
            "write Avro, ORC or Parquet": lambda chance: self.sql(
                "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = "
                f"'{chance.choice(['avro', 'orc', 'parquet', 'parquet'])}')"
            ),
        }

    def _roll_back(self, chance: random.Random) -> None:
        table = self._catalog.load_table(self._table)
        now, kept = table.current_snapshot(), {one.snapshot_id for one in table.snapshots()}
        if now is not None and now.parent_snapshot_id in kept:
            self._call("rollback_to_snapshot", f"snapshot_id => {now.parent_snapshot_id}")

    def _other_partitions(self, chance: random.Random) -> None:
        fields = ["bucket(3, id)", "truncate(2, name)", "bucket(2, day)"]
        found = self._catalog.load_table(self._table).spec().fields
        if found:
            self.sql(f"ALTER TABLE {{t}} DROP PARTITION FIELD {found[0].name}")
        else:
            self.sql(f"ALTER TABLE {{t}} ADD PARTITION FIELD {chance.choice(fields)}")
