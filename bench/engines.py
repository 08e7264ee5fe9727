"""Builds, loads and appends by Spark and in one process, side by side: `python -m bench.engines`.

Both engines work on equal copies of the demo's crawl. Each figure is of a whole command in a process of its own, its
start and Spark's included; a Spark of one machine runs in the same command. After the builds the index files are
compared, but for the random marker of their blocks, and after the appends the rows."""

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer

from bench.measured import Cost, measured
from bench.page import RecordOption, Report, digits, head, row
from gnomon.commands.crawl import page_url, write_crawl, write_increment
from gnomon.commands.spark import spark_session
from tests.opened import open_index

ENGINES = ("local", "spark")
SYNC_BYTES = 16  # after each block of an Avro file
LIBRARIES = ["gnomon-index", "pyspark", "pyarrow"]


def prepare(folder: Path, pages: int, spark_conf: Sequence[str] = ()) -> None:
    """Write the crawl, a batch of a tenth as many rows, and 1,000 keys."""
    if (folder / "keys.csv").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with spark_session(None, spark_conf) as spark:
        write_crawl(spark, str(folder / "crawl"), pages)
        write_increment(spark, str(folder / "batch"), crawl_pages=pages, rows=pages // 10)
    keys = [page_url(i * (pages // 1000)) for i in range(1000)]
    (folder / "keys.csv").write_text("\n".join(["url", *(f'"{key}"' for key in keys)]) + "\n")


def run(*words: str) -> Cost:
    """The cost of a command of Gnomon."""
    return measured([sys.executable, "-m", "gnomon", *words])


def of_engine(folder: Path, engine: str) -> dict[str, Cost]:
    """The cost of each command with an engine, on a copy of the crawl."""
    place = folder / engine
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "crawl", place / "source", copy_function=shutil.copy2)
    source, index, by = str(place / "source"), str(place / "index"), f"--engine={engine}"
    costs = {"build": run("build", source, index, "--key", "url", by)}
    (place / "files.json").write_text(json.dumps(digests(Path(index))))
    costs["load of 1,000 keys"] = run("load", index, str(folder / "keys.csv"), str(place / "loaded"), by)
    costs["dedup"] = run("dedup", index, str(folder / "batch"), "--batch-id", "batch", by)
    return costs


def digests(index: Path) -> list[str]:
    """The digests of the index files and Bloom filters. The sync marker of an index file depends on the name of its
    segment, which is random: the digests are of all blocks without their marker, and not of the header."""
    nodes = [_blocks(file.read_bytes()) for file in index.rglob("*.btree.avro")]
    filters = [file.read_bytes() for file in (index / "_shadow/filters").rglob("*") if file.is_file()]
    return sorted(hashlib.sha256(data).hexdigest() for data in [*nodes, *filters])


def _blocks(data: bytes) -> bytes:
    sync = data[-SYNC_BYTES:]
    return data[data.index(sync) + SYNC_BYTES :].replace(sync, b"")


def compared(folder: Path) -> str:
    """What both engines made, compared."""
    files = [json.loads((folder / engine / "files.json").read_text()) for engine in ENGINES]
    loaded = [pq.read_table(folder / engine / "loaded").sort_by("url") for engine in ENGINES]
    rows = [open_index(folder / engine / "index").view.snapshot.rows for engine in ENGINES]
    same = files[0] == files[1], loaded[0].equals(loaded[1].cast(loaded[0].schema)), rows[0] == rows[1]
    verdict = "equal" if all(same) else f"NOT EQUAL {same}"
    what = f"{len(files[0])} index files and filters, {loaded[0].num_rows:,} loaded rows"
    return f"{what}, {rows[0]:,} rows after the append: {verdict}"


def table(costs: dict[str, dict[str, Cost]]) -> str:
    """The figures as Markdown."""
    figures = [f"{engine}: {what}" for engine in ENGINES for what in ("s", "CPU s", "peak MB")]
    lines = head(["", *figures])
    for command in costs[ENGINES[0]]:
        found = [costs[engine][command] for engine in ENGINES]
        lines.append(
            row(
                [
                    command,
                    *(
                        text
                        for one in found
                        for text in (digits(one.seconds), digits(one.cpu), str(max(one.programs.values())))
                    ),
                ]
            )
        )
    return "\n".join(lines)


def main(
    pages: Annotated[int, typer.Option(help="Pages of the crawl.", min=2_000)] = 200_000,
    folder: Annotated[str, typer.Option(help="Folder of the crawl and the copies.")] = ".bench/engines",
    record: RecordOption = False,
) -> None:
    """Run both engines, and print the table."""
    root = Path(folder) / str(pages)
    prepare(root, pages)
    report = Report("bench.engines", LIBRARIES, {"pages": pages})
    report.say(table({engine: of_engine(root, engine) for engine in ENGINES}))
    report.say(f"\n{compared(root)}.")
    report.record(record)


if __name__ == "__main__":
    typer.run(main)
