"""The Iceberg tables: each function runs the operations of one table, and its docstring becomes the description."""

from collections.abc import Callable

from tests.golden.tables.equality_deletes import EqualityDeletes
from tests.golden.tables.iceberg_columns import (
    EVERYTHING,
    MERGE_ON_READ,
    ROWS,
    iceberg_avro_blocks,
    iceberg_avro_evolved,
    iceberg_avro_types,
    iceberg_evolved,
    iceberg_formats,
    iceberg_formats_evolved,
    iceberg_orc_evolved,
    iceberg_orc_types,
    iceberg_types,
)
from tests.golden.tables.recorders import IcebergRecorder


def iceberg_vectors(run: IcebergRecorder) -> None:
    """Version 3 with deletion vectors: one Puffin file with the vectors of several files, of which one is superseded
    later; an update, a merge, both rewrites, and a rollback to before the deletes."""
    operations_on_deletes(run, 3)


def operations_on_deletes(run: IcebergRecorder, version: int) -> None:
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        f"LOCATION '{{path}}' TBLPROPERTIES ('format-version' = '{version}', {MERGE_ON_READ}, "
        "'write.delete.granularity' = 'partition')",
    )
    for start in (0, 60, 120):
        run("append", f"INSERT INTO {{t}} {ROWS} FROM range({start}, {start + 60}, 1, 1)")
    appended = run.versions[-1]["version"]
    run("delete in three files", "DELETE FROM {t} WHERE id % 10 = 3")
    run("delete in the first file again", "DELETE FROM {t} WHERE id BETWEEN 20 AND 29")
    run("update", "UPDATE {t} SET name = concat(name, ' changed') WHERE id % 25 = 0")
    run(
        "merge",
        "MERGE INTO {t} t USING (SELECT id, concat('merged-', id) AS name FROM range(170, 195, 1, 1)) new "
        "ON t.id = new.id WHEN MATCHED AND new.id % 2 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.name = new.name "
        "WHEN NOT MATCHED THEN INSERT (id, name, amount, seen) VALUES (new.id, new.name, NULL, NULL)",
    )
    table = f"table => 'db.{run.name}'"
    if version == 2:  # of version 3, each file has one vector: there is nothing to join
        run("rewrite position deletes", f"CALL lake.system.rewrite_position_delete_files({table}, {EVERYTHING})")
    run("rewrite data files", f"CALL lake.system.rewrite_data_files({table}, {EVERYTHING})")
    run("delete", "DELETE FROM {t} WHERE id < 10")
    run("rollback", f"CALL lake.system.rollback_to_snapshot('db.{run.name}', {appended})")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(300, 320, 1, 1)")


def iceberg_position_deletes(run: IcebergRecorder) -> None:
    """Version 2 with position deletes: one delete file names several data files; an update, a merge, both rewrites, and
    a rollback to before the deletes."""
    operations_on_deletes(run, 2)


def iceberg_rewritten(run: IcebergRecorder) -> None:
    """Version 2, copy-on-write: a delete, an update and a merge rewrite files."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        "LOCATION 'file:{path}' TBLPROPERTIES ('format-version' = '2')",
    )
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(0, 60, 1, 1)")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(60, 120, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 20 = 7")
    run("delete a whole file", "DELETE FROM {t} WHERE id < 60")
    run("update", "UPDATE {t} SET amount = -1 WHERE id > 110")
    run("overwrite", f"INSERT OVERWRITE {{t}} {ROWS} FROM range(0, 50, 1, 1)")
    run("truncate", "TRUNCATE TABLE {t}")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(0, 10, 1, 1)")


def iceberg_upgraded(run: IcebergRecorder) -> None:
    """Version 1, upgraded to 2 (position deletes) and to 3 (deletion vectors): the first files have sequence number 0,
    and a vector replaces position deletes."""
    run(
        "create version 1",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        "LOCATION '{path}' TBLPROPERTIES ('format-version' = '1')",
    )
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(0, 60, 1, 1)")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(60, 100, 1, 1)")
    run("delete by rewriting", "DELETE FROM {t} WHERE id = 61")
    run("upgrade to version 2", f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})")
    run("delete positions", "DELETE FROM {t} WHERE id % 10 = 3")
    run("upgrade to version 3", "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    run("delete by a vector", "DELETE FROM {t} WHERE id BETWEEN 10 AND 15")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(100, 120, 1, 1)")
    run("update", "UPDATE {t} SET name = 'changed' WHERE id IN (0, 70, 110)")


def iceberg_hidden_partitions(run: IcebergRecorder) -> None:
    """Partitions by bucket, truncate and days, in folders of the object-store layout; then an identity field added, a
    field dropped, and a field replaced."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        "PARTITIONED BY (bucket(4, id), truncate(6, name), days(seen)) LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', 'write.object-storage.enabled' = 'true', {MERGE_ON_READ})",
    )
    rows = ROWS.replace("61000001", "3600000001")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 40, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 7 = 2")
    run("drop two fields", "ALTER TABLE {t} DROP PARTITION FIELD truncate(6, name)")
    run("replace a field", "ALTER TABLE {t} REPLACE PARTITION FIELD days(seen) WITH months(seen)")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(40, 60, 1, 1)")
    run("add an identity field", "ALTER TABLE {t} ADD PARTITION FIELD name")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(60, 64, 1, 1)")
    run("drop the identity field", "ALTER TABLE {t} DROP PARTITION FIELD name")
    run("update", "UPDATE {t} SET amount = 0 WHERE id IN (3, 45, 61)")
    run("append null", "INSERT INTO {t} VALUES (1000, NULL, NULL, NULL)")


def iceberg_partitions(run: IcebergRecorder) -> None:
    """Identity partitions by text with odd characters, null and empty text, and by a date; deletion vectors."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, city STRING, day DATE, amount DOUBLE) USING iceberg PARTITIONED BY (city, day) "
        f"LOCATION 'file:{{path}}' TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})",
    )
    cities = "array('a b', '50%', 'x=y', 's/t', 'Zürich', '日本', 'q?r#s', 'it''s', 'c:d+e', '%20', '', NULL)"
    rows = f"SELECT id, {cities}[id % 12], date'2026-01-01' + CAST(id DIV 48 AS INT), id / 8"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("append to no date", "INSERT INTO {t} SELECT id, 'a b', CAST(NULL AS DATE), 0 FROM range(200, 203, 1, 1)")
    run("delete rows", "DELETE FROM {t} WHERE id IN (1, 13, 26, 11)")
    run("delete a partition", "DELETE FROM {t} WHERE city = 's/t'")
    run("update to another partition", "UPDATE {t} SET city = 'x=y/z' WHERE id IN (4, 16)")
    run("rename the partition column", "ALTER TABLE {t} RENAME COLUMN city TO town")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(60, 72, 1, 1)")


def iceberg_equality_deletes(run: IcebergRecorder) -> None:
    """Equality deletes, which Spark reads and does not write (Iceberg's Java library writes them here): by the key,
    by another column with null, by two columns; keys that come back later; rows added in the same commit, which the
    delete leaves and a position delete of that commit removes; other position deletes."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, kind STRING) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    rows = "SELECT 5000000000 + id, concat('name-', id), IF(id % 9 = 0, NULL, concat('kind-', id % 5))"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    deletes = EqualityDeletes(run)
    ids = [5_000_000_003, 5_000_000_017, 5_000_000_059, 5_000_009_999]  # beyond int: py4j makes Java longs of them
    deletes.commit("equality delete by the key", [{"id": number} for number in ids])
    run("append deleted keys again", "INSERT INTO {t} SELECT 5000000000 + id, 'back', 'kind-1' FROM range(3, 4, 1, 1)")
    run("delete positions", "DELETE FROM {t} WHERE id BETWEEN 5000000020 AND 5000000024")
    added = [
        {"id": 5_000_000_005, "name": "replaced", "kind": "kind-1"},
        {"id": 5_000_000_005, "name": "replaced twice", "kind": None},
        {"id": 5_000_000_100, "name": "new", "kind": "kind-2"},
    ]
    keys = [{"id": row["id"]} for row in added[1:]]
    deletes.commit("upsert: deletes and rows in one commit", keys, added, superseded=[0])
    deletes.commit("equality delete by a column of null", [{"kind": None}])
    deletes.commit(
        "equality delete by two columns",
        [{"name": "name-30", "kind": "kind-0"}, {"name": "name-31", "kind": "kind-0"}],
    )
    run("append", f"INSERT INTO {{t}} {rows} FROM range(60, 80, 1, 1)")
    run("rewrite data files", f"CALL lake.system.rewrite_data_files(table => 'db.{run.name}', {EVERYTHING})")


def iceberg_equality_formats(run: IcebergRecorder) -> None:
    """Equality deletes and rows in Avro and ORC files: of a narrower type than the key has later, of null, and of a key
    that comes back in the same commit."""
    run(
        "create",
        "CREATE TABLE {t} (id INT, name STRING) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    rows = "SELECT IF(id = 7, NULL, CAST(id AS INT)), concat('name-', id)"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 30, 1, 1)")
    deletes = EqualityDeletes(run)
    deletes.commit("equality delete in Avro", [{"id": 3}, {"id": 12}, {"id": 4_000}], format="AVRO")
    run("append deleted keys again", "INSERT INTO {t} SELECT 3, 'back'")
    added = [{"id": 5, "name": "in ORC"}, {"id": 100, "name": "new in ORC"}]
    deletes.commit("upsert in ORC", [{"id": 5}, {"id": 14}], added, format="ORC")
    added = [{"id": 100, "name": "in Avro"}, {"id": 101, "name": "new in Avro"}]
    deletes.commit("upsert in Avro", [{"id": 100}, {"id": None}], added, format="AVRO")
    run("widen the key", "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT")
    run("append", "INSERT INTO {t} SELECT 5000000000 + id, concat('name-', id) FROM range(0, 5, 1, 1)")
    deletes.commit("equality delete in ORC", [{"id": 5_000_000_001}, {"id": 5_000_000_003}], format="ORC")
    run("delete a position", "DELETE FROM {t} WHERE id = 101")


def iceberg_equality_scopes(run: IcebergRecorder) -> None:
    """Equality deletes of a partition, which leave equal keys of other partitions, and of a file without partition,
    which delete in all partitions; the partition field comes later than the first files. The key is (id, part)."""
    run.key = ("id", "part")
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, part STRING, name STRING) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    rows = "SELECT 5000000000 + id DIV 3, concat('p', id % 3), concat('name-', id)"
    run("append without partitions", f"INSERT INTO {{t}} {rows} FROM range(0, 30, 1, 1)")
    run("add a partition field", "ALTER TABLE {t} ADD PARTITION FIELD part")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(30, 90, 1, 1)")
    deletes = EqualityDeletes(run)
    ids = [{"id": 5_000_000_001}, {"id": 5_000_000_012}, {"id": 5_000_000_013}]
    deletes.commit("equality delete of a partition", ids, partition="p1")
    deletes.commit("equality delete of all partitions", [{"id": 5_000_000_002}, {"id": 5_000_000_015}], spec=0)
    added = [{"id": 5_000_000_020, "part": "p2", "name": "replaced"}]
    deletes.commit("upsert in a partition", [{"id": 5_000_000_020}], added, partition="p2")
    run("drop the partition field", "ALTER TABLE {t} DROP PARTITION FIELD part")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(90, 99, 1, 1)")


def iceberg_name_mapping(run: IcebergRecorder) -> None:
    """Parquet files without field ids, taken in by add_files: a name mapping says which columns they have; partition
    values lie in the names of folders alone."""
    plain = f"{run.path}/taken in"
    run.spark.sql(f"{ROWS}, CAST(id % 3 AS INT) AS part FROM range(0, 60, 1, 1)").write.partitionBy("part").parquet(
        plain
    )
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP, part INT) USING iceberg "
        f"PARTITIONED BY (part) LOCATION '{{path}}' TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    run("add files", f"CALL lake.system.add_files(table => 'db.{run.name}', source_table => '`parquet`.`{plain}`')")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("append", f"INSERT INTO {{t}} {ROWS}, 1 FROM range(60, 90, 1, 1)")
    run("update", "UPDATE {t} SET name = 'changed' WHERE id IN (1, 70)")


def iceberg_branches(run: IcebergRecorder) -> None:
    """A branch and a tag beside main, and a staged snapshot that no branch has; compressed metadata files."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        "LOCATION '{path}' TBLPROPERTIES ('format-version' = '2', 'write.metadata.compression-codec' = 'gzip', "
        f"'write.wap.enabled' = 'true', {MERGE_ON_READ})",
    )
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(0, 40, 1, 1)")
    run("tag", "ALTER TABLE {t} CREATE TAG first")
    run("create a branch", "ALTER TABLE {t} CREATE BRANCH other")
    run("append to the branch", f"INSERT INTO {{t}}.branch_other {ROWS} FROM range(100, 120, 1, 1)")
    run("delete in main", "DELETE FROM {t} WHERE id % 10 = 3")
    run("delete in the branch", "DELETE FROM {t}.branch_other WHERE id % 10 = 4")
    run.spark.conf.set("spark.wap.id", "staged")
    run("stage an append", f"INSERT INTO {{t}} {ROWS} FROM range(200, 210, 1, 1)")
    run.spark.conf.unset("spark.wap.id")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(40, 50, 1, 1)")


def iceberg_expired(run: IcebergRecorder) -> None:
    """Expired snapshots: the files of the versions before are deleted, their metadata files are not."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        f"LOCATION '{{path}}' TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    for start in (0, 40):
        run("append", f"INSERT INTO {{t}} {ROWS} FROM range({start}, {start + 40}, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("rewrite data files", f"CALL lake.system.rewrite_data_files(table => 'db.{run.name}', {EVERYTHING})")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(80, 100, 1, 1)")
    run(
        "expire snapshots",
        f"CALL lake.system.expire_snapshots(table => 'db.{run.name}', "
        "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 2)",
    )
    run.mark_gone()
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(100, 110, 1, 1)")


def iceberg_defaults(run: IcebergRecorder) -> None:
    """Version 3: columns of all types, and a field of a struct, added with a default, which older files of Parquet and
    Avro answer with, also after a rename and where the type is widened; newer files have nulls of their own. Spark
    reads no defaults of ORC files."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, inner STRUCT<a: INT>) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})",
    )
    rows = "SELECT id, concat('name-', id), IF(id % 5 = 0, NULL, named_struct('a', CAST(id AS INT)))"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 40, 1, 1)")
    run("write avro", "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'avro')")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(40, 60, 1, 1)")
    java = run.spark._jvm.org.apache.iceberg
    types, literal = java.types.Types, java.expressions.Expressions.lit
    defaults = {
        "note": (types.StringType.get(), 'it\'s "none"'),
        "whole": (types.IntegerType.get(), 7),
        "flag": (types.BooleanType.get(), True),
        "ratio": (types.FloatType.get(), 0.1),
        "price": (types.DecimalType.of(9, 2), "12.50"),
        "day": (types.DateType.get(), "1969-12-30"),
        "seen": (types.TimestampType.withZone(), "1969-12-31T23:59:59.999999+00:00"),
        "local": (types.TimestampType.withoutZone(), "2026-01-01T00:00:00.000001"),
    }
    update = run.table().updateSchema()
    for name, (kind, value) in defaults.items():
        update = update.addColumn(name, kind, literal(value).to(kind))
    update = update.addColumn("inner", "b", types.LongType.get(), "", literal(5))
    update.commit()
    run.record("add columns with defaults")
    own = ", ".join(f"CAST(NULL AS {kind})" for kind in ("STRING", "INT", "BOOLEAN", "FLOAT", "DECIMAL(9,2)", "DATE"))
    own += ", NULL, NULL"
    newer = "SELECT id, concat('name-', id), named_struct('a', CAST(id AS INT), 'b', NULL)"
    run("append nulls", f"INSERT INTO {{t}} {newer}, {own} FROM range(60, 70, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("delete by a default", "DELETE FROM {t} WHERE whole = 7 AND id BETWEEN 35 AND 45")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN whole TO number")
    run("widen a column", "ALTER TABLE {t} ALTER COLUMN number TYPE BIGINT")
    run("update", "UPDATE {t} SET note = 'changed' WHERE id IN (1, 50, 61)")


ICEBERG: dict[str, Callable[[IcebergRecorder], None]] = {
    make.__name__: make
    for make in (
        iceberg_vectors,
        iceberg_position_deletes,
        iceberg_rewritten,
        iceberg_upgraded,
        iceberg_evolved,
        iceberg_avro_evolved,
        iceberg_orc_evolved,
        iceberg_formats_evolved,
        iceberg_hidden_partitions,
        iceberg_partitions,
        iceberg_formats,
        iceberg_types,
        iceberg_avro_types,
        iceberg_avro_blocks,
        iceberg_orc_types,
        iceberg_equality_deletes,
        iceberg_equality_scopes,
        iceberg_equality_formats,
        iceberg_name_mapping,
        iceberg_branches,
        iceberg_expired,
        iceberg_defaults,
    )
}
