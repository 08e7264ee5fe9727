"""Data files of other writers, with their expected rows. They are not part of the repository: their tests are skipped
if the folder next to it is absent."""

import csv
import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.sources.readers import BytesReader

ROOT = Path(__file__).parents[2].parent / "shared" / "corpora"
INVENTORY = ROOT / "INVENTORY_OPEN.tsv"

needs_corpora = pytest.mark.skipif(not INVENTORY.exists(), reason=f"no corpora of foreign files at {ROOT}")


class Expected(NamedTuple):
    """A row of a file: its ordinal, its block (row group, stripe) and place in it, its byte position, its canonical
    value. Values that the format or the reference reader does not have are None."""

    ordinal: int
    block: int | None
    in_block: int | None
    position: int | None
    row: Any


def entries() -> list[dict[str, str]]:
    """The inventory, with one entry per file; empty if the corpora are absent."""
    if not INVENTORY.exists():
        return []
    with INVENTORY.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def files_of(format: str, *classes: str) -> list[Any]:
    """The inventory's entries of a format, as test parameters."""
    found = [entry for entry in entries() if entry["format"] == format and entry["class"] in classes]
    return [pytest.param(entry, id=entry["file"]) for entry in found]


def load_canon() -> ModuleType:
    """The module that compares canonical values: `canon`, `canon_array`, `same`."""
    spec = importlib.util.spec_from_file_location("corpora_canon", ROOT / "canon.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reader_of(entry: dict[str, str]) -> BytesReader:
    return BytesReader((ROOT / entry["file"]).read_bytes(), entry["file"])


def expected_of(entry: dict[str, str]) -> list[Expected]:
    """The listed rows of a file, in file order. A long file has a part of its rows listed."""
    if not entry["expected_file"]:
        return []
    with gzip.open(ROOT / "expected" / entry["expected_file"], "rt") as lines:
        listed = [json.loads(line) for line in lines]
    return [Expected(one["i"], one.get("b"), one.get("in"), one.get("pos"), one.get("row", one)) for one in listed]


def without_classes(row: dict[str, Any]) -> dict[str, Any]:
    """A listed row with only the bytes of values of unknown Hadoop classes."""
    return {k: {"$b": v["$b"]} if isinstance(v, dict) and "$w" in v else v for k, v in row.items()}


def canonical(table: pa.Table, canon: ModuleType) -> list[dict[str, Any]]:
    """The rows of a table, canonical."""
    columns = [canon.canon_array(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
