"""`python -m tests.golden.dione_tables.types FOLDER` prints what Dione and Gnomon do with each format and type of key.

`deploy/make-dione-tables.sh types` writes the tables to a folder, and calls it."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from gnomon import build, open_index
from gnomon.base.errors import GnomonError
from tests.golden.dione_tables.pack import WAREHOUSE


def found(folder: Path, table: dict[str, Any]) -> str:
    """What Gnomon's reader finds of the keys of a table."""
    options = {}
    if table["format"] == "SequenceFile":
        options = {"value_format": "delimited", "schema": f"k {table['kind']}, v string", "delimiter": "|"}
    index = folder / "indexes" / table["table"]
    build(None, folder / WAREHOUSE / table["table"], index, ["k"], options=options)
    rows: dict[str | None, list[str]] = defaultdict(list)
    for row in table["rows"]:
        rows[row.get("k")].append(row["v"])
    opened = open_index(str(index))
    right = 0
    for key, values in rows.items():
        given = key.encode() if key is not None and table["kind"] == "binary" else key
        right += sorted(one["v"] for one in opened.fetch_many([(given,)])[0]) == sorted(values)
    return f"fetched {right} of {len(rows)}"


def main(folder: Path) -> None:
    """Print a line for each table."""
    print("| format | key | Dione | Gnomon |", "| --- | --- | --- | --- |", sep="\n")
    for table in json.loads((folder / "types.json").read_text()):
        try:
            ours = found(folder, table) if table["rows"] else ""
        except GnomonError as error:
            ours = str(error)
        print(f"| {table['format']} | {table['what']} | {table['dione']} | {ours} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
