"""Files that Dione's own Java writer made, and files made by its rules, read completely."""

import pytest

from gnomon.btree import BTreeReader, DamagedIndexFile
from gnomon.btree.__main__ import to_json_object
from gnomon.btree.keys import Key
from tests.btree.files import header_of
from tests.btree.vectors import OVER, SOUND, open_vector, read_vector, rows_of, stored_entries


def _absent(tree: BTreeReader, keys: list[Key]) -> list[Key]:
    """Absent keys of the same types: just before or just after existing keys, or far off."""
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
    tree = open_vector(name)
    entries = stored_entries(tree, name)
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
    tree = open_vector("dups_example_i3_h2_null.btree.avro")
    assert tree.get((5,)) == [(2,), (3,), (4,), (5,)]


def test_nulls_are_greatest_where_the_union_says_so() -> None:
    tree = open_vector("nullkeys_i4_h3_deflate.btree.avro")
    keys = [key for key, _ in tree.scan()]
    assert keys[-1] == (None,)
    assert len(tree.get((None,))) == keys.count((None,))


@pytest.mark.parametrize("name", OVER)
def test_a_file_cut_by_the_1_mib_trap_is_refused_with_path_and_offset(name: str) -> None:
    data = read_vector(name)
    with pytest.raises(DamagedIndexFile) as error:
        open_vector(name)
    assert error.value.path == name
    assert error.value.offset == len(data)
    assert str(header_of(data).end + int(header_of(data).metadata["data_bytes"])) in str(error.value)


def test_a_file_just_under_the_1_mib_trap_reads() -> None:
    tree = open_vector("defects/under_1MiB_h2.btree.avro")
    entries = list(tree.scan())
    assert tree.check() == len(entries) == 5000
    assert tree.get(entries[1234][0]) == [entries[1234][1]]


def test_the_json_form_of_an_entry_is_the_vectors() -> None:
    tree, rows = open_vector("comp_n1200_i1000_h2_null.btree.avro"), rows_of("comp_n1200_i1000_h2_null.btree.avro")
    for (key, value), row in zip(tree.scan(), rows, strict=True):
        assert to_json_object(key, tree.schema.keys) == row["key"]
        assert to_json_object(value, tree.schema.values) == row["value"]
