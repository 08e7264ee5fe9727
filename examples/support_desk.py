"""Support desk: one order by its number, in this process and over HTTP.

The files are never copied: the index has keys and pointers, and the row comes out of its own Parquet file."""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import gnomon


def write_orders(folder: Path) -> None:
    """Three days of 10,000 orders each, as a nightly job of a shop would write them."""
    for day in range(3):
        numbers = range(day * 10_000, (day + 1) * 10_000)
        states = ["paid" if n % 7 else "returned" for n in numbers]
        orders = pa.table({"id": [f"order-{n}" for n in numbers], "state": states, "total": [n / 4 for n in numbers]})
        path = folder / f"dt=2026-01-0{day + 1}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(orders, path)


def ask(address: str) -> None:
    try:
        with urllib.request.urlopen(address) as answer:
            print("  200", json.load(answer)["rows"])
    except urllib.error.HTTPError as error:
        print(f"  {error.code}", json.load(error)["detail"])


with tempfile.TemporaryDirectory() as made:
    orders, index = Path(made, "orders"), Path(made, "index")
    write_orders(orders)
    built = gnomon.build(None, orders, index, ["id"])  # None: without Spark
    print(f"Indexed {built.rows} orders in {built.seconds} s; the index has {built.index_bytes} bytes")

    print("In this process:")
    with gnomon.open_index(index) as opened:
        print(" ", opened.fetch("order-12345"))
        print("  order-99999 is there:", "order-99999" in opened)

    print("Over HTTP:")
    command = [sys.executable, "-m", "gnomon", "serve", str(index), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]  # "Gnomon serves ... at http://127.0.0.1:..."
        ask(f"{address}/rows/order-12345")
        ask(f"{address}/rows/order-99999")
        service.terminate()
