"""Privacy request: find a customer in all versions of a Delta table, delete the rows, and prove what is left.

A delete hides the rows; the bytes go with the table's own clean-up. Needs `pip install 'gnomon-index[delta]'`."""

import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import gnomon

CUSTOMER = "customer-17"


def orders(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"customer": [f"customer-{n % 100}" for n in numbers], "total": [n / 4 for n in numbers]})


with tempfile.TemporaryDirectory() as made:
    table, index = Path(made, "orders"), Path(made, "index")
    write_deltalake(table, orders(0, 150))
    write_deltalake(table, orders(150, 300), mode="append")
    gnomon.build(None, f"delta:{table}", index, ["customer"])

    print(f"1. The rows of {CUSTOMER} in all versions of the table:", flush=True)
    gnomon.main(["find", str(index), CUSTOMER, "--all-versions"])

    print("2. Delete them by one commit of the table:")
    deleted = gnomon.delete(None, index, [CUSTOMER], "request-4711")  # a second call of this name does nothing
    print(f"   {deleted.rows_deleted} rows deleted, table version {deleted.table_version}")
    with gnomon.open_index(index) as opened:
        print("   rows now:", opened.fetch(CUSTOMER))

    print("3. Is the key erased? Not yet: older files hold it.", flush=True)
    code = gnomon.main(["find", str(index), CUSTOMER, "--prove-erased"])
    assert code == 1

    print("4. The table's clean-up removes the files that no version needs:", flush=True)
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    code = gnomon.main(["find", str(index), CUSTOMER, "--prove-erased"])
    print("   exit code", code)
    assert code == 0
