"""Tables that Dione's own job has indexed, each in a `.tar.gz` with its indexes: `NAME/` has the data, and `NAME_KEYS/`
an index by these keys. `tables.json` describes them. `rows.jsonl.gz` has their rows by Spark, the same in all.

`deploy/make-dione-tables.sh` writes them anew."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class DioneTable:
    """`root` is the folder that entries name. `columns` are Spark's DDL. `statements` declare the table, and then the
    table of each index, as Dione's job has declared them."""

    name: str
    root: str
    columns: str
    indexes: list[list[str]]  # the keys of each
    include: list[str]
    statements: list[str]

    @property
    def archive(self) -> Path:
        return FOLDER / f"{self.name}.tar.gz"


def read_tables() -> list[DioneTable]:
    described: list[dict[str, Any]] = json.loads((FOLDER / "tables.json").read_text())
    return [DioneTable(**one) for one in described]


def read_rows() -> list[dict[str, Any]]:
    """The rows, with the partition column `dt`."""
    with gzip.open(FOLDER / "rows.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]
