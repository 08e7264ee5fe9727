"""The Iceberg tables of schema evolution, of types, and of data files in other formats than Parquet."""

from collections.abc import Sequence
from itertools import cycle

from tests.golden.tables.recorders import IcebergRecorder

MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
EVERYTHING = "options => map('rewrite-all', 'true')"
ROWS = (
    "SELECT id, concat('name-', id) AS name, CAST(id * 1.25 AS DECIMAL(9,2)) AS amount, "
    "timestamp_micros(1767225600000000 + id * 61000001) AS seen"
)


def iceberg_evolved(run: IcebergRecorder) -> None:
    """Schema evolution: renamed, added, dropped, added again under the dropped name, moved and widened columns, also
    within a struct, a list and a map, and the key."""
    evolve(run, ["parquet"])


def iceberg_avro_evolved(run: IcebergRecorder) -> None:
    """The schema evolution of `iceberg_evolved` with data files and position deletes of Avro."""
    evolve(run, ["avro"])


def iceberg_orc_evolved(run: IcebergRecorder) -> None:
    """The schema evolution of `iceberg_evolved` with data files and position deletes of ORC."""
    evolve(run, ["orc"])


def iceberg_formats_evolved(run: IcebergRecorder) -> None:
    """The schema evolution of `iceberg_evolved`, each write with another format: Avro, ORC, Parquet in turn."""
    evolve(run, ["avro", "orc", "parquet"])


def evolve(run: IcebergRecorder, formats: Sequence[str]) -> None:
    """Write with the formats in turn."""
    turns = cycle(formats)

    def write(operation: str, statement: str) -> None:
        if len(formats) > 1:
            run(
                f"{operation}: format",
                f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default' = '{next(turns)}')",
            )
        run(operation, statement)

    run(
        "create",
        "CREATE TABLE {t} (id INT, amount DECIMAL(9,2), ratio FLOAT, note STRING, "
        "address STRUCT<street: STRING, zip: INT>, list ARRAY<STRUCT<a: INT, b: STRING>>, "
        "map MAP<STRING, STRUCT<c: INT>>) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', 'write.format.default' = '{formats[-1]}', {MERGE_ON_READ})",
    )
    rows = (
        "SELECT CAST(id AS INT), CAST(id / 4 AS DECIMAL(9,2)), CAST(id / 3 AS FLOAT), concat('note ', id), "
        "named_struct('street', concat('street ', id), 'zip', CAST(id + 1000 AS INT)), "
        "array(named_struct('a', CAST(id AS INT), 'b', 'x')), map('k', named_struct('c', CAST(id AS INT)))"
    )
    write("append", f"INSERT INTO {{t}} {rows} FROM range(0, 60, 1, 1)")
    run("rename a column", "ALTER TABLE {t} RENAME COLUMN amount TO price")
    run("widen int to bigint", "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT")
    run("widen float to double", "ALTER TABLE {t} ALTER COLUMN ratio TYPE DOUBLE")
    run("widen decimal", "ALTER TABLE {t} ALTER COLUMN price TYPE DECIMAL(18,2)")
    run("drop a column", "ALTER TABLE {t} DROP COLUMN note")
    write("delete", "DELETE FROM {t} WHERE price = 1.25")
    run("add a column with the name of the dropped one", "ALTER TABLE {t} ADD COLUMN note INT")
    run("move a column to the front", "ALTER TABLE {t} ALTER COLUMN note FIRST")
    run("rename a field", "ALTER TABLE {t} RENAME COLUMN address.zip TO postcode")
    run("widen a field", "ALTER TABLE {t} ALTER COLUMN address.postcode TYPE BIGINT")
    run("add a field", "ALTER TABLE {t} ADD COLUMN address.country STRING FIRST")
    run("drop a field", "ALTER TABLE {t} DROP COLUMN address.street")
    run("rename a field in a list", "ALTER TABLE {t} RENAME COLUMN list.element.a TO z")
    run("add a field in a map", "ALTER TABLE {t} ADD COLUMN map.value.d INT")
    write(
        "append",
        "INSERT INTO {t} SELECT CAST(-id AS INT), id + 5000000000, CAST(id + 0.25 AS DECIMAL(18,2)), id / 3, "
        "named_struct('country', 'CH', 'postcode', id + 5000000000), array(named_struct('z', 1, 'b', 'y')), "
        "map('k', named_struct('c', 1, 'd', 2)) FROM range(0, 30, 1, 1)",
    )
    write("update", "UPDATE {t} SET note = 1 WHERE id % 20 = 0")
    run.key = ("number",)
    run("rename the key", "ALTER TABLE {t} RENAME COLUMN id TO number")
    write("rewrite data files", f"CALL lake.system.rewrite_data_files(table => 'db.{run.name}', {EVERYTHING})")


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


def iceberg_avro_blocks(run: IcebergRecorder) -> None:
    """Avro files of several blocks, with position deletes, then deletion vectors, in the first, the last and the
    middle blocks."""
    run(
        "create",
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg LOCATION '{path}' "
        f"TBLPROPERTIES ('format-version' = '2', 'write.format.default' = 'avro', {MERGE_ON_READ})",
    )
    rows = "SELECT id, rpad(concat('name-', id), 120, 'x') AS name"
    run("append", f"INSERT INTO {{t}} {rows} FROM range(0, 2400, 1, 1)")
    run("delete positions", "DELETE FROM {t} WHERE id % 500 = 3 OR id BETWEEN 1000 AND 1010 OR id = 2399")
    run("upgrade to version 3", "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    run("delete by vectors", "DELETE FROM {t} WHERE id = 0 OR id % 100 = 7")


def iceberg_types(run: IcebergRecorder) -> None:
    """Types: timestamps with and without a zone before 1970 too, decimals of 38 digits, binary, lists, maps, structs,
    NaN, and nulls in each column."""
    write_types(run, "parquet", 2)


def iceberg_avro_types(run: IcebergRecorder) -> None:
    """The types of `iceberg_types` in data files of Avro, also a map whose keys are numbers, in format version 3 with
    deletion vectors."""
    write_types(run, "avro", 3)


def iceberg_orc_types(run: IcebergRecorder) -> None:
    """The types of `iceberg_types` in data files of ORC, also a map whose keys are numbers, in format version 3 with
    deletion vectors."""
    write_types(run, "orc", 3)


def write_types(run: IcebergRecorder, file_format: str, version: int) -> None:
    """Write values of all types with a file format, in a version of the table format."""
    by_number = file_format != "parquet"
    run(
        "create",
        "CREATE TABLE {t} (id DECIMAL(38,10), bool BOOLEAN, whole INT, real FLOAT, double DOUBLE, seen TIMESTAMP, "
        "local TIMESTAMP_NTZ, day DATE, bytes BINARY, list ARRAY<INT>, map MAP<STRING, DECIMAL(9,2)>, "
        "nested STRUCT<a: STRING, b: ARRAY<STRUCT<c: TIMESTAMP, d: BINARY>>>"
        f"{', numbers MAP<INT, STRING>' * by_number}) USING iceberg LOCATION '{{path}}' "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.format.default' = '{file_format}', {MERGE_ON_READ})",
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
    values += ["map(CAST(id AS INT), concat('n', id), -1, NULL)"] * by_number
    absent = [values[0], *(f"IF(id % {2 + n} = 0, NULL, {value})" for n, value in enumerate(values[1:]))]
    run("append", f"INSERT INTO {{t}} SELECT {', '.join(values)} FROM range(0, 40, 1, 1)")
    run("append nulls", f"INSERT INTO {{t}} SELECT {', '.join(absent)} FROM range(40, 80, 1, 1)")
    run("delete by a timestamp", "DELETE FROM {t} WHERE seen < timestamp'1969-12-15 00:00:00'")
    run("update", "UPDATE {t} SET nested = NULL WHERE whole = 30 OR bool")
    run("null key", "INSERT INTO {t} (id, whole) VALUES (NULL, 1)")
