"""The Delta tables: each function runs the operations of one table, and its docstring becomes the description."""

from collections.abc import Callable

from tests.golden.tables.recorders import DeltaRecorder


def delta_vectors(run: DeltaRecorder) -> None:
    """Deletion vectors: two on one file, an update, a merge, OPTIMIZE, a purge, and a restore to before a delete."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9,2), seen TIMESTAMP) USING delta "
        "TBLPROPERTIES (delta.enableDeletionVectors = true)",
    )
    rows = (
        "SELECT id, concat('name-', id), CAST(id * 1.25 AS DECIMAL(9,2)), "
        "timestamp_micros(1767225600000000 + id * 61000001)"
    )
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 120, 1, 1)")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(120, 200, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("delete", "DELETE FROM {t} WHERE id BETWEEN 40 AND 49 OR id = 119")
    run("update", "UPDATE {t} SET name = concat(name, ' changed') WHERE id % 25 = 0")
    run(
        "merge",
        "MERGE INTO {t} USING (SELECT id, concat('merged-', id) AS name FROM range(190, 215, 1, 1)) new "
        "ON {t}.id = new.id WHEN MATCHED AND new.id % 2 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET name = new.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, name)",
    )
    run("optimize", "OPTIMIZE {t}")
    run("delete", "DELETE FROM {t} WHERE id < 10")
    run("purge", "REORG TABLE {t} APPLY (PURGE)")
    run("restore", "RESTORE TABLE {t} TO VERSION AS OF 3")
    run("delete a whole file", "DELETE FROM {t} WHERE id < 120")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 20, 1, 1)")


def delta_partitions(run: DeltaRecorder) -> None:
    """Partitions by text with odd characters, null and empty text, and by a date; copy-on-write; a checkpoint at each
    third version."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, city STRING, day DATE, amount DOUBLE) USING delta PARTITIONED BY (city, day) "
        "TBLPROPERTIES (delta.enableDeletionVectors = false, delta.checkpointInterval = 3)",
    )
    cities = "array('a b', '50%', 'x=y', 's/t', 'Zürich', '日本', 'q?r#s', 'it''s', 'c:d+e', '%20', '', NULL)"
    rows = f"SELECT id, {cities}[id % 12], date'2026-01-01' + CAST(id DIV 48 AS INT), id / 8"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(60, 84, 1, 1)")
    run("append to no date", "INSERT INTO {t} SELECT id, 'a b', CAST(NULL AS DATE), 0 FROM range(200, 203, 1, 1)")
    run("delete rows", "DELETE FROM {t} WHERE id IN (1, 13, 26)")
    run("delete a partition", "DELETE FROM {t} WHERE city = 's/t'")
    run("update to another partition", "UPDATE {t} SET city = 'x=y/z' WHERE id IN (4, 16)")
    run(
        "merge",
        "MERGE INTO {t} USING (SELECT id, '50%' AS city, date'2026-01-03' AS day FROM range(70, 90, 1, 1)) new "
        "ON {t}.id = new.id WHEN MATCHED THEN UPDATE SET amount = -1 "
        "WHEN NOT MATCHED THEN INSERT (id, city, day) VALUES (id, city, day)",
    )
    run("optimize", "OPTIMIZE {t}")
    run("restore", "RESTORE TABLE {t} TO VERSION AS OF 3")


def delta_renamed(run: DeltaRecorder) -> None:
    """Column mapping by name: a column renamed, one dropped and added again under its name, fields of a struct renamed
    and added; files in folders of random prefixes; deletion vectors."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, region STRING, amount INT, note STRING, "
        "address STRUCT<street: STRING, zip: INT>) USING delta PARTITIONED BY (region) "
        "TBLPROPERTIES (delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true, "
        "delta.randomizeFilePrefixes = true)",
    )
    rows = (
        "SELECT id, concat('r ', id % 2), CAST(id AS INT), concat('note ', id), "
        "named_struct('street', concat('street ', id), 'zip', CAST(id + 1000 AS INT))"
    )
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("append", f"INSERT INTO {{t}} {rows} FROM range(60, 90, 1, 1)")
    run("drop a column", "ALTER TABLE {t} DROP COLUMN note")
    run("delete", "DELETE FROM {t} WHERE price % 9 = 4")
    run("add a column with the name of the dropped one", "ALTER TABLE {t} ADD COLUMN note INT AFTER id")
    run("rename a field", "ALTER TABLE {t} RENAME COLUMN address.zip TO postcode")
    run("add a field", "ALTER TABLE {t} ADD COLUMN address.country STRING")
    run("rename the partition column", "ALTER TABLE {t} RENAME COLUMN region TO area")
    run(
        "append",
        "INSERT INTO {t} (id, note, area, price, address) SELECT id, CAST(-id AS INT), concat('r ', id % 2), 7, "
        "named_struct('street', 'new', 'postcode', 1, 'country', 'CH') FROM range(90, 120, 1, 1)",
    )
    run.key = ("number",)
    run("rename the key", "ALTER TABLE {t} RENAME COLUMN id TO number")
    run("update", "UPDATE {t} SET price = 0 WHERE number IN (5, 65, 95)")
    run("optimize", "OPTIMIZE {t}")


def delta_mapped_later(run: DeltaRecorder) -> None:
    """Column mapping by name switched on after files were written, so that the first columns keep their names in the
    files; then two columns exchange their names."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, a STRING, b STRING) USING delta "
        "TBLPROPERTIES (delta.enableDeletionVectors = false)",
    )
    run("append", "INSERT INTO {t} SELECT id, concat('a', id), concat('b', id) FROM range(0, 50, 1, 1)")
    run("map columns by name", "ALTER TABLE {t} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')")
    run("rename a to c", "ALTER TABLE {t} RENAME COLUMN a TO c")
    run("rename b to a", "ALTER TABLE {t} RENAME COLUMN b TO a")
    run("rename c to b", "ALTER TABLE {t} RENAME COLUMN c TO b")
    run("append", "INSERT INTO {t} (id, a, b) SELECT id, concat('a', id), concat('b', id) FROM range(50, 80, 1, 1)")
    run("add a column", "ALTER TABLE {t} ADD COLUMN `odd, name (x)` INT")
    run("update", "UPDATE {t} SET `odd, name (x)` = 1 WHERE id % 10 = 0")


def delta_mapped_by_id(run: DeltaRecorder) -> None:
    """Column mapping by field id: a rename, a drop, an addition with the dropped name, and a rewrite."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, amount INT) USING delta "
        "TBLPROPERTIES (delta.columnMapping.mode = 'id', delta.enableDeletionVectors = true)",
    )
    rows = "SELECT id, concat('name-', id), CAST(id AS INT)"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("drop a column", "ALTER TABLE {t} DROP COLUMN name")
    run("add a column with the name of the dropped one", "ALTER TABLE {t} ADD COLUMN name STRING")
    run("delete", "DELETE FROM {t} WHERE id < 5")
    run("append", "INSERT INTO {t} SELECT id, CAST(id AS INT), concat('again-', id) FROM range(60, 90, 1, 1)")
    run("update", "UPDATE {t} SET name = 'set' WHERE id BETWEEN 55 AND 65")
    run("optimize", "OPTIMIZE {t}")


def delta_widened(run: DeltaRecorder) -> None:
    """Type widening, of the key as well: files keep the narrow types."""
    run(
        "create",
        "CREATE TABLE {t} (id INT, b BYTE, s SHORT, i INT, f FLOAT, d DECIMAL(5,2), n INT, day DATE) USING delta "
        "TBLPROPERTIES (delta.enableTypeWidening = true, delta.feature.timestampNtz = 'supported', "
        "delta.enableDeletionVectors = false)",
    )
    rows = (
        "SELECT CAST(id AS INT), CAST(id - 60 AS BYTE), CAST(id * 100 AS SHORT), CAST(id * 10000000 AS INT), "
        "CAST(id / 3 AS FLOAT), CAST(id / 4 AS DECIMAL(5,2)), CAST(id AS INT), date'2026-01-01' + CAST(id AS INT)"
    )
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("widen byte to int", "ALTER TABLE {t} ALTER COLUMN b TYPE INT")
    run("widen short to int", "ALTER TABLE {t} ALTER COLUMN s TYPE INT")
    run("widen int to bigint", "ALTER TABLE {t} ALTER COLUMN i TYPE BIGINT")
    run("widen float to double", "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE")
    run("widen decimal", "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(20,4)")
    run("widen int to double", "ALTER TABLE {t} ALTER COLUMN n TYPE DOUBLE")
    run("widen date to timestamp_ntz", "ALTER TABLE {t} ALTER COLUMN day TYPE TIMESTAMP_NTZ")
    run("widen the key", "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT")
    run(
        "append",
        "INSERT INTO {t} SELECT id + 5000000000, CAST(id + 1000 AS INT), CAST(id + 100000 AS INT), id + 5000000000, "
        "id / 3, CAST(id / 7 AS DECIMAL(20,4)), id + 0.5D, timestamp_ntz'2026-03-01 01:02:03.000004' "
        "FROM range(0, 20, 1, 1)",
    )
    run("update", "UPDATE {t} SET d = d + 0.0001 WHERE id < 6")


def delta_types(run: DeltaRecorder) -> None:
    """Types: timestamps with and without a zone before 1970 too, decimals of 38 digits, binary, arrays, maps, structs,
    NaN, nulls in each column; checkpoints of version 2."""
    run(
        "create",
        "CREATE TABLE {t} (id DECIMAL(38,10), bool BOOLEAN, tiny TINYINT, small SMALLINT, real FLOAT, double DOUBLE, "
        "seen TIMESTAMP, local TIMESTAMP_NTZ, day DATE, bytes BINARY, list ARRAY<INT>, map MAP<STRING, DECIMAL(9,2)>, "
        "nested STRUCT<a: STRING, b: ARRAY<STRUCT<c: TIMESTAMP, d: BINARY>>>) USING delta "
        "TBLPROPERTIES (delta.enableDeletionVectors = true, delta.checkpointPolicy = 'v2', "
        "delta.checkpointInterval = 2)",
    )
    seen = "timestamp_micros((id - 20) * 86399999999 * 100)"
    values = [
        "CAST(id - 20 AS DECIMAL(38,10)) * 1234567890123456789.0123456789",
        "id % 3 = 0",
        "CAST(id AS TINYINT)",
        "CAST(id * 300 AS SMALLINT)",
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
    run("update", "UPDATE {t} SET nested.a = NULL WHERE tiny = 30 OR bool")
    run("null key", "INSERT INTO {t} (id, tiny) VALUES (NULL, 1)")


def delta_tracked(run: DeltaRecorder) -> None:
    """Row tracking and clustering: row ids survive an update and OPTIMIZE."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING) USING delta CLUSTER BY (id) "
        "TBLPROPERTIES (delta.enableRowTracking = true, delta.enableDeletionVectors = true)",
    )
    for start in (0, 50, 100):
        run("append", f"INSERT INTO {{t}} SELECT id, concat('name-', id) FROM range({start}, {start + 50}, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 7")
    run("update", "UPDATE {t} SET name = 'changed' WHERE id BETWEEN 45 AND 55")
    run("optimize", "OPTIMIZE {t} FULL")
    run("append", "INSERT INTO {t} SELECT id, concat('name-', id) FROM range(150, 170, 1, 1)")


def delta_clone(run: DeltaRecorder) -> None:
    """A shallow clone: its log names data files and deletion vectors of another table by absolute addresses."""
    source = f"delta.`{run.folder}/source table`"
    for statement in (
        f"CREATE TABLE {source} (id BIGINT, name STRING) USING delta "
        "TBLPROPERTIES (delta.enableDeletionVectors = true)",
        f"INSERT INTO {source} SELECT id, concat('name-', id) FROM range(0, 60, 1, 1)",
        f"DELETE FROM {source} WHERE id % 10 = 3",
    ):
        run.spark.sql(statement)
    run("clone", f"CREATE TABLE {{t}} SHALLOW CLONE {source}")
    run("append", "INSERT INTO {t} SELECT id, concat('name-', id) FROM range(60, 90, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 4")
    run("update", "UPDATE {t} SET name = 'changed' WHERE id IN (1, 61)")


def delta_vacuumed(run: DeltaRecorder) -> None:
    """VACUUM deleted data files and deletion vectors of the versions before; the log is complete."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING) USING delta TBLPROPERTIES (delta.enableDeletionVectors = true)",
    )
    for start in (0, 40):
        run("append", f"INSERT INTO {{t}} SELECT id, concat('name-', id) FROM range({start}, {start + 40}, 1, 1)")
    run("delete", "DELETE FROM {t} WHERE id % 10 = 3")
    run("update", "UPDATE {t} SET name = 'changed' WHERE id = 50")
    run("optimize", "OPTIMIZE {t}")
    run("vacuum", "VACUUM {t} RETAIN 0 HOURS")
    run.mark_gone()
    run("append", "INSERT INTO {t} SELECT id, concat('name-', id) FROM range(80, 100, 1, 1)")


def delta_changes(run: DeltaRecorder) -> None:
    """A change data feed: files of changes lie below the table's folder and hold no rows of the table. Timestamps of
    commits lie in the log; one column has a default."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING, note STRING DEFAULT 'none') USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.enableInCommitTimestamps = true, "
        "delta.feature.allowColumnDefaults = 'supported', delta.enableDeletionVectors = false)",
    )
    run("append", "INSERT INTO {t} (id, name) SELECT id, concat('name-', id) FROM range(0, 40, 1, 1)")
    run("update", "UPDATE {t} SET note = 'changed' WHERE id < 10")
    run("delete", "DELETE FROM {t} WHERE id BETWEEN 5 AND 14")
    run("truncate", "TRUNCATE TABLE {t}")
    run("append", "INSERT INTO {t} (id, name) SELECT id, concat('name-', id) FROM range(10, 30, 1, 1)")


DELTA: dict[str, Callable[[DeltaRecorder], None]] = {
    make.__name__: make
    for make in (
        delta_vectors,
        delta_partitions,
        delta_renamed,
        delta_mapped_later,
        delta_mapped_by_id,
        delta_widened,
        delta_types,
        delta_tracked,
        delta_clone,
        delta_vacuumed,
        delta_changes,
    )
}
