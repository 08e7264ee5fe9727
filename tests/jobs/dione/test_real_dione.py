"""Indexes that Dione's own job made, taken over: each entry leads to the row that Spark reads from the table."""

import tarfile
from pathlib import Path

import pytest

from gnomon.jobs.build import build
from gnomon.jobs.dione import import_dione
from gnomon.shadow import open_index
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.golden.dione_tables import DioneTable, read_rows, read_tables
from tests.jobs.dione.test_import import contents
from tests.profiles import cases

SAMPLE = 23  # every such row is fetched
CASES = cases((table, keys) for table in read_tables() for keys in table.indexes)


def test_all_formats_and_key_types_are_there() -> None:
    formats = {(table.name.partition("_")[0], tuple(keys)) for table in read_tables() for keys in table.indexes}
    keys = [("ks",), ("ki",), ("kl",), ("ki", "ks"), ("kd",)]
    assert formats == {(format, key) for format in ("avro", "orc", "parquet", "sequence") for key in keys}


@pytest.mark.parametrize(("table", "keys"), CASES, ids=lambda part: getattr(part, "name", None) or "-".join(part))
def test_an_import_has_diones_entries_and_leads_to_their_rows(
    tmp_path: Path, table: DioneTable, keys: list[str]
) -> None:
    with tarfile.open(table.archive) as archive:
        archive.extractall(tmp_path, filter="data")
    options = {}
    if table.name.startswith("sequence"):
        options = {"value_format": "delimited", "schema": table.columns, "delimiter": "|"}
    source, dione = tmp_path / table.name, tmp_path / f"{table.name}_{'_'.join(keys)}"
    moved = {table.root: str(tmp_path)}
    found = import_dione(None, dione, tmp_path / "imported", source, options=options, moved=moved)
    assert (found.left_out, found.build.rows) == ([], len(read_rows()))
    build(None, source, tmp_path / "built", keys, table.include, options=options)
    assert contents(tmp_path / "imported") == contents(tmp_path / "built")
    assert verify(storage_at(tmp_path / "imported"), sample=None).faults == []

    rows = read_rows()
    names = [*keys, *table.include]
    entries = [
        (place.partition("dt=")[2], *entry[: len(names)]) for place, _, *entry in contents(tmp_path / "imported")
    ]
    assert sorted(entries) == sorted((row["dt"], *(row[name] for name in names)) for row in rows)
    index = open_index(tmp_path / "imported")
    for row in rows[::SAMPLE]:
        key = tuple(row[name] for name in keys)
        same = sorted(one["v"] for one in rows if (one["dt"], *(one[k] for k in keys)) == (row["dt"], *key))
        fetched = index.fetch(key if len(key) > 1 else key[0], columns=["v"], where={"dt": row["dt"]})
        assert sorted(one["v"] for one in fetched) == same
