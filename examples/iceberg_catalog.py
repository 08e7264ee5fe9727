"""Iceberg catalog: an index plans the scans of an Iceberg table, so that an engine opens only files that hold the keys.

The engine is pyiceberg here; Spark and others take the same address. Needs
`pip install 'gnomon-index[catalog]' 'pyiceberg[sql-sqlite,pyiceberg-core]'`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import In
from pyiceberg.table import Table

FILES, ROWS = 40, 50


def files_of(table: Table) -> str:
    """The files that a scan for two keys opens, and its rows."""
    scan = table.scan(row_filter=In("id", [7, 1_234]))
    return f"{len(list(scan.plan_files()))} of {FILES} files, rows {sorted(scan.to_arrow()['id'].to_pylist())}"


with tempfile.TemporaryDirectory() as made:
    # A catalog of pyiceberg's own configuration, under the name "shop"; a REST catalog would be --upstream URL.
    uri, warehouse = f"sqlite:///{made}/catalog.db", f"file://{made}/warehouse"
    known = os.environ | {"PYICEBERG_CATALOG__SHOP__URI": uri, "PYICEBERG_CATALOG__SHOP__WAREHOUSE": warehouse}
    shop = load_catalog("shop", uri=uri, warehouse=warehouse)
    shop.create_namespace("sales")
    table = shop.create_table("sales.orders", pa.schema([("id", pa.int64()), ("total", pa.float64())]))
    for number in range(FILES):  # each file has ids of the whole range, so that its statistics leave nothing out
        ids = [number + FILES * row for row in range(ROWS)]
        table.append(pa.table({"id": ids, "total": [n / 4 for n in ids]}))
    print("Planned by the statistics of the files:", files_of(table))

    gnomon, index = [sys.executable, "-m", "gnomon"], str(Path(made, "index"))
    build = [*gnomon, "build", "iceberg:shop.sales.orders", index, "--key", "id", "--engine", "local"]
    subprocess.run(build, env=known, check=True)
    serve = [*gnomon, "catalog", index, "--catalog", "shop", "--port", "0"]
    with subprocess.Popen(serve, env=known, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        through = RestCatalog("through", uri=address)
        print("Planned through the index:", files_of(through.load_table("sales.orders")))
        through.close()
        service.terminate()
    shop.close()
