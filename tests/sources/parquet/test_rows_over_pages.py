"""Rows whose pages end within them, and numbers of a writer that are not what the format says: a fetch gives the rows
that a scan gives, or an error."""

import io
from itertools import product
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.sources import DamagedSource, SourceError, open_mapped, open_source
from tests.profiles import cases, examples
from tests.sources.parquet_files import Layout, nested_table, repaged
from tests.sources.readers import BytesReader

STORED = [(0, False), (1, True), (6, False)]  # codec, and whether values are entries of a dictionary
LISTS = pa.list_(pa.list_(pa.string()))
STRUCTS = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int64()))]))


def table_of(dice: Random) -> pa.Table:
    """Rows of which some are much longer than a page, some empty, some null."""

    def some(make: object, most: int) -> list[object] | None:
        if dice.random() < 0.1:
            return None
        return [make(i) for i in range(dice.choice((0, 1, 1, 2, most)))]  # type: ignore[operator]

    def maybe(value: object) -> object:
        return None if dice.random() < 0.1 else value

    rows = range(12)
    columns = {
        "id": pa.array(rows, pa.int64()),
        "list": pa.array([some(maybe, 30) for _ in rows], pa.list_(pa.int32())),
        "lists": pa.array([some(lambda i: some(lambda j: maybe(f"{i}.{j}"), 9), 8) for _ in rows], LISTS),
        "map": pa.array([some(lambda i: (f"key {i}", maybe(i)), 25) for _ in rows], pa.map_(pa.string(), pa.int32())),
        "structs": pa.array([some(lambda i: maybe({"x": maybe(i), "y": some(maybe, 9)}), 7) for _ in rows], STRUCTS),
        "point": pa.array([maybe({"x": i, "y": [i] * (i % 3)}) for i in rows], STRUCTS.value_type),
    }
    return pa.table(columns)


class Kept(dict[object, object]):
    """Pages that a file keeps."""

    def put(self, key: object, page: object) -> None:
        self[key] = page


def assert_all_fetches_are_right(data: bytes, table: pa.Table, dice: Random) -> None:
    """Single rows, neighbours and all rows, with maps that are new, known, recorded, learned, and with kept pages."""
    whole = pq.read_table(io.BytesIO(data)).to_pylist()
    assert whole == table.to_pylist()
    reader = BytesReader(data)
    first = open_mapped(reader, "parquet")
    recorded = first.export_maps(reader, deep=True)
    learned = open_mapped(reader, "parquet")
    kept = open_mapped(reader, "parquet")
    kept.keep_in(Kept())  # type: ignore[arg-type]
    files = [first, open_mapped(reader, "parquet", None, lambda: recorded), learned, kept]
    choices = [[row] for row in range(len(whole))]
    dice.shuffle(choices)
    choices += [[row, row + 1, row + 3] for row in range(0, len(whole) - 3, 5)] + [list(range(len(whole)))]
    for rows in choices:
        for source in files:
            found = source.fetch(reader, [(row, 0) for row in rows], table.column_names).to_pylist()
            assert found == [whole[row] for row in rows], rows
    learned.learn(first.export_learned())
    for row in range(len(whole)):
        assert learned.fetch(reader, [(row, 0)], table.column_names).to_pylist() == [whole[row]]
    scanned = pa.Table.from_batches(list(open_source(reader, "parquet").scan(reader, table.column_names)))
    assert scanned.select(table.column_names).to_pylist() == whole


@pytest.mark.parametrize(("codec", "dictionary"), STORED, ids=["none", "snappy, dictionary", "zstd"])
@pytest.mark.parametrize(("version", "index"), cases(product((1, 2), (None, "begun", "touched"))))
def test_a_row_that_goes_on_in_later_pages_comes_back_whole(
    version: int, index: str | None, codec: int, dictionary: bool
) -> None:
    for number in range(examples(5) // 5):
        dice = Random(f"{version} {index} {codec} {dictionary} {number}")
        table = table_of(dice)
        entries = [dice.choice((1, 2, 3, 7, 8, 20, 1000)) for _ in range(dice.choice((1, 7)))]
        layout = Layout(entries, version, index, codec, dictionary)
        assert_all_fetches_are_right(repaged(table, layout), table, dice)


@pytest.mark.parametrize("lie", [-2, -1, 1, 2])
@pytest.mark.parametrize(
    ("number", "version"), cases([("index", 1), ("index", 2), ("rows", 2), ("values", 1), ("values", 2)])
)
def test_a_count_that_a_writer_got_wrong_never_gives_another_row(version: int, number: str, lie: int) -> None:
    """Pages decide: an index or a header that contradicts them gives the right rows or an error."""
    table = nested_table(20)
    rows, names = table.to_pylist(), ("numbers", "point", "map")
    for entries, index in product((3, 8, 1000), (None, "begun")):
        data = repaged(table, Layout([entries], version, index, lie=(number, lie)))
        reader = BytesReader(data)
        source = open_source(reader, "parquet")
        for row, name in product(range(20), names):
            try:
                assert source.fetch(reader, [(row, 0)], [name])[name].to_pylist() == [rows[row][name]]
            except SourceError as error:
                assert number == "values" or "negative number of rows" in str(error)  # noqa: PT017


@pytest.mark.parametrize(("name", "lie"), [("id", -41), ("id", -1), ("id", 1), ("numbers", -41), ("numbers", -1)])
@pytest.mark.parametrize("entries", [1, 7, 1000])
def test_a_chunk_that_conceals_some_of_its_values_is_damage(name: str, lie: int, entries: int) -> None:
    table = nested_table(40).select([name])
    reader = BytesReader(repaged(table, Layout([entries], lie=("values", lie))))
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource):
        list(source.scan(reader, [name]))
    with pytest.raises(DamagedSource):
        source.fetch(reader, [(39, 0)], [name])


def test_an_index_that_counts_wrongly_is_dropped_at_its_first_contradiction() -> None:
    table = pa.table({"id": range(60)})
    reader = BytesReader(repaged(table, Layout([10], 1, "begun", lie=("index", 3))))
    source = open_source(reader, "parquet")
    assert [source.fetch(reader, [(row, 0)], ["id"])["id"][0].as_py() for row in range(60)] == list(range(60))


def test_only_the_last_row_of_a_page_reads_the_next_one() -> None:
    table = pa.table({"numbers": [[i, i] for i in range(40)]})
    reader = BytesReader(repaged(table, Layout([20], 1, "begun")))
    source = open_source(reader, "parquet")
    pages = []
    for row in (5, 9, 39):
        source.fetch(reader, [(row, 0)], ["numbers"])
        reader.forget()
        source.fetch(reader, [(row, 0)], ["numbers"])
        pages.append(len(reader.reads))
    assert pages == [1, 2, 1]
