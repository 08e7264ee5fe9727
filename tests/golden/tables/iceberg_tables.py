"""The Iceberg tables: each function runs the operations of one table, and its docstring becomes the description."""

from collections.abc import Callable

from tests.golden.tables.recorders import IcebergRecorder

MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
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
        f"LOCATION '{{path}}' TBLPROPERTIES ('format-version' = '{version}', {MERGE_ON_READ})",
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
    everything = "options => map('rewrite-all', 'true')"
    if version == 2:  # of version 3, each file has one vector: there is nothing to join
        run("rewrite position deletes", f"CALL lake.system.rewrite_position_delete_files({table}, {everything})")
    run("rewrite data files", f"CALL lake.system.rewrite_data_files({table}, {everything})")
    run("delete", "DELETE FROM {t} WHERE id < 10")
    run("rollback", f"CALL lake.system.rollback_to_snapshot('db.{run.name}', {appended})")
    run("append", f"INSERT INTO {{t}} {ROWS} FROM range(300, 320, 1, 1)")


ICEBERG: dict[str, Callable[[IcebergRecorder], None]] = {make.__name__: make for make in (iceberg_vectors,)}
