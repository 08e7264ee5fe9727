"""Nightly dedup: append only the rows of a batch whose key is new, and index them.

A batch that runs again, after a crash or by mistake, appends nothing."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import gnomon


def pages(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"url": [f"https://site.example/{n}" for n in numbers], "status": [200 for _ in numbers]})


def write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def show(night: str, result: gnomon.DedupResult) -> None:
    if result.known_batch:
        print(f"{night}: the batch was appended before, by snapshot {result.snapshot}: nothing to do")
        return
    print(
        f"{night}: {result.appended} of {result.rows_read} rows appended; {result.already_loaded} were in the source"
        f" already, {result.duplicates_in_batch} came twice in the batch; snapshot {result.snapshot}"
    )


with tempfile.TemporaryDirectory() as made:
    source, index, landing = Path(made, "crawl"), Path(made, "index"), Path(made, "landing")
    write(pages(0, 5_000), source / "part-0.parquet")
    gnomon.build(None, source, index, ["url"])

    # 1,000 pages that are there, 500 new ones, and 100 of them twice
    write(pa.concat_tables([pages(4_000, 5_500), pages(5_000, 5_100)]), landing / "night-1" / "part-0.parquet")
    batch = gnomon.read_batch(None, landing / "night-1", index)
    show("night 1", gnomon.append_new(None, index, batch, "night-1"))
    show("again", gnomon.append_new(None, index, batch, "night-1"))

    show("night 2", gnomon.append_new(None, index, pages(5_400, 5_700), "night-2"))  # a batch from memory

    with gnomon.open_index(index) as opened:
        rows = sum(len(found) for found in opened.fetch_many([f"https://site.example/{n}" for n in range(5_700)]))
        print(f"The source has {rows} pages, each of them once, in {len(list(source.glob('*.parquet')))} files")
