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


DELTA: dict[str, Callable[[DeltaRecorder], None]] = {make.__name__: make for make in (delta_vectors,)}
