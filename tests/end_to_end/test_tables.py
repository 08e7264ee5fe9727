"""Folders of real files that form one table, through `gnomon build` and `fetch`: every listed row of a file comes back
by its key, with its partition, and with nulls for columns of other files."""

import csv
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from gnomon.indexer import build
from gnomon.shadow.tables import partition_of, partition_values
from tests.end_to_end.test_corpora import FORMATS, as_key
from tests.opened import open_index
from tests.sources.corpora import ROOT, entries, expected_of, load_canon, needs_corpora, without_classes

pytestmark = needs_corpora

SOUND = ("good", "disputed", "other-reader")
EVERY_RUN = ("parquetWithSchemaChange", "iceberg_v2_partitioned_position_deletes_orc", "partitioned-csv")
MOST_ROWS = 1_000  # of a file with a list of all rows
Row = dict[str, Any]


class Table(NamedTuple):
    """A folder of files of one format, a key, and the listed rows with their partition columns."""

    folder: Path
    format: str
    key: str
    rows: list[Row]


def tables() -> list[Any]:
    """The tables in the corpora, for every run and for a nightly run. For a folder with several formats, its subfolders
    with one format."""
    if not (ROOT / "TABLES.tsv").exists():
        return []
    every = entries()
    with (ROOT / "TABLES.tsv").open(newline="") as lines:
        places = {line["dir"]: line["common_key_candidates"] for line in csv.DictReader(lines, delimiter="\t")}
    found = []
    for place, keys in places.items():
        files = [entry for entry in every if entry["file"].startswith(f"{place}/")]
        if len({entry["format"] for entry in files}) > 1:
            parts = sorted({Path(entry["file"]).relative_to(place).parts[0] for entry in files})
            tried = [
                (f"{place}/{part}", [e for e in files if e["file"].startswith(f"{place}/{part}/")]) for part in parts
            ]
        else:
            tried = [(place, files)]
        for folder, members in tried:
            table = table_of(folder, members, keys.split(","))
            if table is not None:
                marks = () if place.endswith(EVERY_RUN) else pytest.mark.nightly
                found.append(pytest.param(table, id=folder, marks=marks))
    return found


def table_of(folder: str, files: list[dict[str, str]], keys: list[str]) -> Table | None:
    """The files of a folder as one table. None if they have several formats or no key, or if one is damaged or long."""
    formats = {entry["format"] for entry in files}
    if len(formats) != 1 or any(e["class"] not in SOUND or int(e["rows_read"]) > MOST_ROWS for e in files):
        return None
    rows = []
    for entry in files:
        values = partition_values(partition_of(str(Path(entry["file"]).relative_to(folder))))
        for row in (one.row for one in expected_of(entry)):
            if isinstance(row, list) and entry["format"] == "csv":
                row = {f"_c{i}": value or None for i, value in enumerate(row)}
            if not isinstance(row, dict) or "$pairs" in row:
                return None
            rows.append(without_classes(row) | values)
    named = [key for key in keys if rows and key in rows[0] and key not in values]
    atomic = [
        name for row in rows for name, value in row.items() if isinstance(value, str | int) and name not in values
    ]
    key = next(iter([*named, *atomic]), None)
    return Table(ROOT / folder, FORMATS[formats.pop()], key, rows) if key else None


@pytest.fixture(scope="module")
def canon() -> ModuleType:
    return load_canon()


@pytest.mark.parametrize("table", tables())
def test_every_row_of_a_table_of_real_files_comes_back_by_its_key(
    tmp_path: Path, canon: ModuleType, table: Table
) -> None:
    options = {"header": "false"} if table.format == "csv" else {}
    build(None, str(table.folder), str(tmp_path), [table.key], format=table.format, buckets=2, options=options)
    index = open_index(str(tmp_path))
    assert index.view.snapshot.rows == len(table.rows)
    columns = {name for row in table.rows for name in row}
    found: dict[str, list[Any]] = {}
    for row in table.rows:
        key = as_key(row.get(table.key))
        if repr(key) not in found:
            found[repr(key)] = [canon.canon(one) for one in index.fetch({table.key: key})]
        answers = found[repr(key)]
        expected = dict.fromkeys(columns) | row
        same = [i for i, one in enumerate(answers) if canon.same(expected, dict.fromkeys(columns) | one)]
        assert same, (table.key, expected, answers[:3])
        del answers[same[0]]
    assert not any(found.values()), "more rows than are listed"
    print(f"\n{table.format}: {table.folder.name}: {len(table.rows)} rows equal by {table.key}")
