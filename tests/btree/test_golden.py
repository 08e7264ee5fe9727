"""The files of tests/golden: they read for ever, and today's writer makes them again."""

import pytest

from tests.btree.files import opened, write
from tests.golden.make import FILES, FOLDER


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_reads_whole(name: str) -> None:
    schema, entries, _ = FILES[name]
    tree = opened((FOLDER / name).read_bytes())
    assert list(tree.scan()) == entries
    assert tree.check() == len(entries)
    for key, _ in entries:
        assert tree.get(key) == [value for other, value in entries if other == key]
    assert [column.name for column in tree.schema.columns] == [column.name for column in schema.columns]


@pytest.mark.parametrize("name", [name for name in FILES if "null" in name or "empty" in name])
def test_todays_writer_makes_the_same_bytes(name: str) -> None:
    schema, entries, options = FILES[name]
    assert write(schema, entries, **options) == (FOLDER / name).read_bytes()
    cuts = range(1, len(entries))
    assert write(schema, entries, cuts, **options) == (FOLDER / name).read_bytes()


def test_the_plain_files_have_three_levels() -> None:
    for name in ("plain_deflate.btree.avro", "plain_null.btree.avro"):
        assert opened((FOLDER / name).read_bytes()).census().height == 3
