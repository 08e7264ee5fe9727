"""`python -m tests.golden.dione_tables.takeover FOLDER` takes over the tables of Dione's indexes in the catalog that
Dione's job wrote to, and compares each with a build of its data table.

`deploy/make-dione-tables.sh takeover` writes the tables and the catalog to a folder, and calls it."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from gnomon import build, import_dione
from tests.jobs.dione.test_import import contents


def main(folder: Path) -> None:
    """Print a line for each index. Exits with 1 where one differs from a build."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .enableHiveSupport()
        .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={folder}/metastore")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    wrong = 0
    for path in sorted(folder.glob("*.json")):
        table = json.loads(path.read_text())
        for keys in table["indexes"]:
            name = f"{path.stem}_{'_'.join(keys)}"
            imported, built = (folder / "indexes" / one / name for one in ("imported", "built"))
            result = import_dione(spark, f"table:dione.{name}", imported)
            build(spark, f"table:dione.{path.stem}", built, keys, table["include"])
            entries = contents(imported)
            same = not result.left_out and entries == contents(built) and len(entries) == len(table["rows"])
            wrong += not same
            print(f"{name}: {len(entries)} entries, {'those of a build' if same else 'NOT those of a build'}")
    spark.stop()
    if wrong:
        sys.exit(f"{wrong} indexes differ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
