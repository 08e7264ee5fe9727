"""The Iceberg tables: each function runs the operations of one table, and its docstring becomes the description."""

from collections.abc import Callable

from tests.golden.tables.equality_deletes import EqualityDeletes
from tests.golden.tables.recorders import IcebergRecorder

MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
EVERYTHING = "options => map('rewrite-all', 'true')"
ROWS = (
    "SELECT id, concat('name-', id) AS name, CAST(id * 1.25 AS DECIMAL(9,2)) AS amount, "
    "timestamp_micros(1767225600000000 + id * 61000001) AS seen"
)


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


def iceberg_evolved(run: IcebergRecorder) -> None:
    """Schema evolution: renamed, added, dropped, added again under the dropped name, moved and widened columns, also
    within a struct, a list and a map, and the key."""
    run(
        "create",
        "CREATE TABLE {t} (id INT, amount DECIMAL(9,2), ratio FLOAT, note STRING, "
        "address STRUCT<street: STRING, zip: INT>, list ARRAY<STRUCT<a: INT, b: STRING>>, "
        "map MAP<STRING, STRUCT<c: INT>>) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    rows = (
        "SELECT CAST(id AS INT), CAST(id / 4 AS DECIMAL(9,2)), CAST(id / 3 AS FLOAT), concat('note ', id), "
        "named_struct('street', concat('street ', id), 'zip', CAST(id + 1000 AS INT)), "
        "array(named_struct('a', CAST(id AS INT), 'b', 'x')), map('k', named_struct('c', CAST(id AS INT)))"
    )
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("widen int to bigint", "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT")
    run("widen float to double", "ALTER TABLE {t} ALTER COLUMN ratio TYPE DOUBLE")
    run("widen decimal", "ALTER TABLE {t} ALTER COLUMN price TYPE DECIMAL(18,2)")
    run("drop a column", "ALTER TABLE {t} DROP COLUMN note")
    run("delete", "DELETE FROM {t} WHERE price = 1.25")
    run("add a column with the name of the dropped one", "ALTER TABLE {t} ADD COLUMN note INT")
    run("move a column to the front", "ALTER TABLE {t} ALTER COLUMN note FIRST")
    run("rename a field", "ALTER TABLE {t} RENAME COLUMN address.zip TO postcode")
    run("widen a field", "ALTER TABLE {t} ALTER COLUMN address.postcode TYPE BIGINT")
    run("add a field", "ALTER TABLE {t} ADD COLUMN address.country STRING FIRST")
    run("drop a field", "ALTER TABLE {t} DROP COLUMN address.street")
    run("rename a field in a list", "ALTER TABLE {t} RENAME COLUMN list.element.a TO z")
    run("add a field in a map", "ALTER TABLE {t} ADD COLUMN map.value.d INT")
    run(
        "append",
        "INSERT INTO {t} SELECT CAST(-id AS INT), id + 5000000000, CAST(id + 0.25 AS DECIMAL(18,2)), id / 3, "
        "named_struct('country', 'CH', 'postcode', id + 5000000000), array(named_struct('z', 1, 'b', 'y')), "
        "map('k', named_struct('c', 1, 'd', 2)) FROM range(0, 30, 1, 1)",
    )
    run("update", "UPDATE {t} SET note = 1 WHERE id % 20 = 0")
    run.key = ("number",)
    run("rename the key", "ALTER TABLE {t} RENAME COLUMN id TO number")
    run("rewrite data files", f"CALL lake.system.rewrite_data_files(table => 'db.{run.name}', {EVERYTHING})")


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


def iceberg_formats(run: IcebergRecorder) -> None:
    """Data files of Parquet, ORC and Avro in one table, with deletes in each, and a renamed column."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING iceberg "
        f"LOCATION '{{path}}' TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    for start, name in ((0, "parquet"), (40, "orc"), (80, "avro")):
        run(f"write {name}", f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default' = '{name}')")
        run("append", f"INSERT INTO {{t}} {ROWS} FROM range({start}, {start + 40}, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("write orc", "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'orc')")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 4")


def iceberg_types(run: IcebergRecorder) -> None:
    """Types: timestamps with and without a zone before 1970 too, decimals of 38 digits, binary, lists, maps, structs,
    NaN, and nulls in each column."""
    run(
        "create",
        "CREATE TABLE {t} (id DECIMAL(38,10), bool BOOLEAN, whole INT, real FLOAT, double DOUBLE, seen TIMESTAMP, "
        "local TIMESTAMP_NTZ, day DATE, bytes BINARY, list ARRAY<INT>, map MAP<STRING, DECIMAL(9,2)>, "
        "nested STRUCT<a: STRING, b: ARRAY<STRUCT<c: TIMESTAMP, d: BINARY>>>) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})",
    )
    seen = "timestamp_micros((id - 20) * 86399999999 * 100)"
    values = [
        "CAST(id - 20 AS DECIMAL(38,10)) * 1234567890123456789.0123456789",
        "id % 3 = 0",
        "CAST(id AS INT)",
        "IF(id = 1, float('NaN'), IF(id = 2, float('-Infinity'), float(id / 3)))",
        "IF(id = 3, double('NaN'), IF(id = 4, double('Infinity'), IF(id = 5, -0.0D, id / 3)))",
        seen,
        f"CAST({seen} AS TIMESTAMP_NTZ)",
        "date'1969-12-01' + CAST(id AS INT)",
        "unhex(lpad(hex(id), 6, '00FF'))",
        "IF(id % 4 = 0, array(), array(CAST(id AS INT), NULL))",
        "map(concat('k', id), CAST(id / 4 AS DECIMAL(9,2)), '', NULL)",
        f"named_struct('a', concat('ä', id), 'b', array(named_struct('c', {seen}, 'd', unhex('00'))))",
    ]
    absent = [values[0], *(f"IF(id % {2 + n} = 0, NULL, {value})" for n, value in enumerate(values[1:]))]
    run("append", f"INSERT INTO {{t}} SELECT {', '.join(values)} FROM range(0, 40, 1, 1)")
    run("append nulls", f"INSERT INTO {{t}} SELECT {', '.join(absent)} FROM range(40, 80, 1, 1)")
    run("delete by a timestamp", "DELETE FROM {t} WHERE seen < timestamp'1969-12-15 00:00:00'")
    run("update", "UPDATE {t} SET nested = NULL WHERE whole = 30 OR bool")
    run("null key", "INSERT INTO {t} (id, whole) VALUES (NULL, 1)")


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
    """Version 3: columns added with a default, which older files answer with."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})",
    )
    run("append", "INSERT INTO {t} SELECT id, concat('name-', id) FROM range(0, 40, 1, 1)")
    java = run.spark._jvm.org.apache.iceberg
    default = java.expressions.Expressions.lit("none")
    run.table().updateSchema().addColumn("note", java.types.Types.StringType.get(), default).commit()
    run.record("add a column with a default")
    run("append", "INSERT INTO {t} SELECT id, concat('name-', id), NULL FROM range(40, 60, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")


ICEBERG: dict[str, Callable[[IcebergRecorder], None]] = {
    make.__name__: make
    for make in (
        iceberg_vectors,
        iceberg_position_deletes,
        iceberg_rewritten,
        iceberg_upgraded,
        iceberg_evolved,
        iceberg_hidden_partitions,
        iceberg_partitions,
        iceberg_formats,
        iceberg_types,
        iceberg_equality_deletes,
        iceberg_equality_scopes,
        iceberg_name_mapping,
        iceberg_branches,
        iceberg_expired,
        iceberg_defaults,
    )
}
