"""Dione's own files, beside the repository: `../shared/dione-vectors`. Tests of them are skipped where they are not."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from btree import BTreeReader, Column
from btree.keys import Key, to_stored
from tests.btree.files import Bytes, Entry

ROOT = Path(__file__).parents[2].parent / "shared" / "dione-vectors"
needs_vectors = pytest.mark.skipif(not ROOT.is_dir(), reason="Dione's vectors are not beside the repository")

SOUND = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.btree.avro") if path.parent.name != "defects")
OVER = sorted(path.name for path in (ROOT / "defects").glob("*_over_1MiB*"))


def open_vector(name: str) -> BTreeReader:
    file = Bytes((ROOT / name).read_bytes())
    file.name = name
    return BTreeReader(file)


def rows_of(name: str) -> list[dict[str, Any]]:
    """What a vector holds, as the JSON beside it says."""
    plain = ROOT / name.replace(".btree.avro", ".jsonl")
    text = plain.read_text() if plain.exists() else gzip.decompress(Path(f"{plain}.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def stored_entries(tree: BTreeReader, name: str) -> list[Entry]:
    """The same in stored form, but for -0.0: Dione keeps its sign."""

    def stored(part: dict[str, Any], columns: tuple[Column, ...]) -> Key:
        values = [(part[column.name], column) for column in columns]
        return tuple(v if isinstance(v, float) else to_stored(v, column.type, column.name) for v, column in values)

    keys, values = tree.schema.keys, tree.schema.values
    return [(stored(row["key"], keys), stored(row["value"], values)) for row in rows_of(name)]
