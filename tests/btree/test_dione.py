"""Files that Dione's own Java writer made, and files made by its rules, read completely. The vectors are not part of
the repository: the tests are skipped where the folder beside it is absent."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from btree import BTreeReader, DamagedIndexFile
from btree.display import to_json_object
from btree.keys import Key, to_stored
from tests.btree.files import Bytes, header_of

ROOT = Path(__file__).parents[2].parent / "shared" / "dione-vectors"
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="Dione's vectors are not beside the repository")

SOUND = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.btree.avro") if path.parent.name != "defects")
OVER = sorted(path.name for path in (ROOT / "defects").glob("*_over_1MiB*"))


def _open(name: str) -> BTreeReader:
    file = Bytes((ROOT / name).read_bytes())
    file.name = name
    return BTreeReader(file)


def _rows(name: str) -> list[dict[str, Any]]:
    plain = ROOT / name.replace(".btree.avro", ".jsonl")
    text = plain.read_text() if plain.exists() else gzip.decompress(Path(f"{plain}.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def _stored(tree: BTreeReader, row: dict[str, Any]) -> tuple[Key, Key]:
    key, value = (
        tuple(to_stored(row[part][column.name], column.type, column.name) for column in columns)
        for part, columns in (("key", tree.schema.keys), ("value", tree.schema.values))
    )
    return key, value


def _absent(tree: BTreeReader, keys: list[Key]) -> list[Key]:
    """Keys beside those that exist: of the same types, just before, just after, or far off."""
    others: list[Key] = []
    for key in keys[:: max(1, len(keys) // 50)]:
        last = key[-1]
        if isinstance(last, str):
            others += [(*key[:-1], last + "\x00"), (*key[:-1], last + "~"), (*key[:-1], last[:-1])]
        elif isinstance(last, (int, float)):
            others += [(*key[:-1], last + 1), (*key[:-1], last - 1), (*key[:-1], last * 2)]
    return [key for key in others if key not in set(keys)]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_reads_in_order_and_each_key_with_all_its_rows(name: str) -> None:
    tree, rows = _open(name), _rows(name)
    entries = [_stored(tree, row) for row in rows]
    assert list(tree.scan()) == entries
    assert tree.check() == len(entries)
    by_key: dict[Key, list[Key]] = {}
    for key, value in entries:
        by_key.setdefault(key, []).append(value)
    keys = list(by_key)
    assert tree.get_many(keys) == list(by_key.values())
    for key in keys[:: max(1, len(keys) // 200)]:
        assert tree.get(key) == by_key[key]
    assert not any(tree.get_many(_absent(tree, keys)))


def test_rows_that_diones_reader_loses_are_found() -> None:
    tree = _open("dups_example_i3_h2_null.btree.avro")
    assert tree.get((5,)) == [(2,), (3,), (4,), (5,)]


def test_nulls_are_greatest_where_the_union_says_so() -> None:
    tree = _open("nullkeys_i4_h3_deflate.btree.avro")
    keys = [key for key, _ in tree.scan()]
    assert keys[-1] == (None,)
    assert len(tree.get((None,))) == keys.count((None,))


@pytest.mark.parametrize("name", OVER)
def test_a_file_cut_by_the_1_mib_trap_is_refused_with_path_and_offset(name: str) -> None:
    data = (ROOT / "defects" / name).read_bytes()
    with pytest.raises(DamagedIndexFile) as error:
        _open(f"defects/{name}")
    assert error.value.path == f"defects/{name}"
    assert error.value.offset == len(data)
    assert str(header_of(data).end + int(header_of(data).metadata["data_bytes"])) in str(error.value)


def test_a_file_just_under_the_1_mib_trap_reads() -> None:
    tree = _open("defects/under_1MiB_h2.btree.avro")
    entries = list(tree.scan())
    assert tree.check() == len(entries) == 5000
    assert tree.get(entries[1234][0]) == [entries[1234][1]]


def test_the_json_form_of_an_entry_is_the_vectors() -> None:
    tree, rows = _open("comp_n1200_i1000_h2_null.btree.avro"), _rows("comp_n1200_i1000_h2_null.btree.avro")
    for (key, value), row in zip(tree.scan(), rows, strict=True):
        assert to_json_object(key, tree.schema.keys) == row["key"]
        assert to_json_object(value, tree.schema.values) == row["value"]
