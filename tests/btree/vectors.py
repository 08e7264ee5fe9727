"""Index files of Dione's own writer, and some made by its rules: `tests/golden/dione`, each gzipped."""

import gzip
import json
from pathlib import Path
from typing import Any

from gnomon.btree import BTreeReader, Column
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key
from tests.btree.files import Bytes, Entry
from tests.profiles import PROFILE

ROOT = Path(__file__).parents[1] / "golden" / "dione"
NAMES = sorted(str(path.relative_to(ROOT)).removesuffix(".gz") for path in ROOT.rglob("*.gz"))

INDEX_FILES = [name for name in NAMES if name.endswith(".btree.avro")]
LARGE = {"str_n100000_i10_h3_deflate.btree.avro"} if PROFILE == "quick" else set()  # left out
SOUND = [name for name in INDEX_FILES if not name.startswith("defects/") and name not in LARGE]
OVER = [name for name in INDEX_FILES if name.startswith("defects/") and "_over_1MiB" in name]
SETTINGS = [name.removesuffix(".btree.avro") for name in SOUND if name.replace(".btree.avro", ".meta.json") in NAMES]


def read_vector(name: str) -> bytes:
    """The bytes of a vector, unpacked."""
    return gzip.decompress((ROOT / f"{name}.gz").read_bytes())


def open_vector(name: str) -> BTreeReader:
    file = Bytes(read_vector(name))
    file.name = name
    return BTreeReader(file)


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a vector, from its JSON file."""
    return [json.loads(line) for line in read_vector(name.replace(".btree.avro", ".jsonl")).splitlines()]


def stored_entries(tree: BTreeReader, name: str) -> list[Entry]:
    """The entries of a vector in stored form, except -0.0, whose sign Dione keeps."""

    def stored(part: dict[str, Any], columns: tuple[Column, ...]) -> Key:
        values = [(part[column.name], column) for column in columns]
        return tuple(
            v if isinstance(v, float) else key_type(column.type).to_stored(v, column.name) for v, column in values
        )

    keys, values = tree.schema.keys, tree.schema.values
    return [(stored(row["key"], keys), stored(row["value"], values)) for row in rows_of(name)]
