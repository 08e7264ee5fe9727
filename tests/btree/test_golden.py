"""The files of tests/golden stay readable, and the current writer makes the same files."""

import pytest

from gnomon.btree import format as fmt
from tests.btree.files import header_of, opened, write
from tests.golden.make import DIONE, EARLIER, FILES, FOLDER, dione_file, plain_entries

ALL = {**EARLIER, **{name: (schema, entries) for name, (schema, entries, _) in FILES.items()}}
SAME_BYTES = [name for name, (_, entries, options) in FILES.items() if options.get("codec") == "null" or not entries]


@pytest.mark.parametrize("name", ALL)
def test_a_golden_file_reads_whole(name: str) -> None:
    schema, entries = ALL[name]
    tree = opened((FOLDER / name).read_bytes())
    assert list(tree.scan()) == entries
    assert tree.check() == len(entries)
    for key, _ in entries:
        assert tree.get(key) == [value for other, value in entries if other == key]
    assert [column.name for column in tree.schema.columns] == [column.name for column in schema.columns]


@pytest.mark.parametrize("name", SAME_BYTES)
def test_todays_writer_makes_the_same_bytes(name: str) -> None:
    schema, entries, options = FILES[name]
    assert write(schema, entries, **options) == (FOLDER / name).read_bytes()
    cuts = range(1, len(entries))
    assert write(schema, entries, cuts, **options) == (FOLDER / name).read_bytes()


def test_the_dione_file_reads_whole_and_is_made_again() -> None:
    data = (FOLDER / DIONE).read_bytes()
    assert dione_file() == data
    null, *others = plain_entries()
    assert list(opened(data).scan()) == [*others, null]
    for key, _ in others:
        rows = [value[1] for other, value in others if other == key]
        assert [value[1] for value in opened(data).get(key)] == rows


def test_the_files_show_what_they_are_for() -> None:
    for name in ("plain_deflate.btree.avro", "sealed_plain_deflate.btree.avro", "sealed_plain_zstandard.btree.avro"):
        assert opened((FOLDER / name).read_bytes()).census().height == 3
    assert (header_of((FOLDER / "sealed_split_run_null.btree.avro").read_bytes()).number(fmt.SPLIT_RUNS_KEY) or 0) > 3
