"""Pages that pyarrow misreads or refuses give the rows that were written."""

import datetime as dt
from itertools import product
from random import Random

import pyarrow as pa
import pytest

from gnomon.sources import DamagedSource, open_source
from tests.profiles import examples
from tests.sources.parquet_files import Layout, repaged
from tests.sources.readers import BytesReader

INT32S, INT64S = [-(1 << 31), (1 << 31) - 1, 0, 5], [-(1 << 63), (1 << 63) - 1, 0, 5]
WORDS = ["", "a", "ab" * 40, "ab" * 39 + "c", "name 1", "name 2"]
DELTAS = [5, 6, 7]


def table_of(dice: Random, rows: int = 200) -> pa.Table:
    """A column of each type that has a DELTA encoding, with and without nulls, flat and nested."""

    def some(values: list[object], nulls: bool = True) -> list[object]:
        return [None if nulls and dice.random() < 0.2 else dice.choice(values) for _ in range(rows)]

    lists = [some(INT32S)[: dice.randrange(4)] for _ in range(rows)]
    deep = [
        [{"s": word, "n": [1] * dice.randrange(3)} for word in some(WORDS)[: dice.randrange(3)]] for _ in range(rows)
    ]
    kind = pa.list_(pa.struct([("s", pa.string()), ("n", pa.list_(pa.int64()))]))
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "int": pa.array(some(INT32S), pa.int32()),
            "long": pa.array(some(INT64S), pa.int64()),
            "day": pa.array(some([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), pa.date32()),
            "required": pa.array(some(INT32S, False), pa.int32()),
            "text": pa.array(some(WORDS), pa.string()),
            "fixed": pa.array(some([b"abcd", b"abce", b"\0\0\0\0"]), pa.binary(4)),
            "double": pa.array(some([0.5, -1.0]), pa.float64()),
            "list": pa.array(lists, pa.list_(pa.int32())),
            "deep": pa.array(deep, kind),
        },
    )


def assert_rows(data: bytes, table: pa.Table) -> None:
    reader, rows = BytesReader(data), table.to_pylist()
    source = open_source(reader, "parquet")
    for chosen in ([0], [7, 8, 50], [table.num_rows - 1], list(range(table.num_rows))):
        for name in table.column_names:
            found = source.fetch(reader, [(row, 0) for row in chosen], [name])
            assert found[name].to_pylist() == [rows[row][name] for row in chosen], name
    scanned = pa.Table.from_batches(list(source.scan(reader, table.column_names)))
    assert scanned.select(table.column_names).to_pylist() == rows


@pytest.mark.parametrize("encoding", DELTAS)
@pytest.mark.parametrize(("version", "codec"), [(1, 0), (1, 1), (2, 0), (2, 6)])
def test_values_of_a_delta_encoding_come_back_whatever_the_width_of_their_differences(
    version: int, codec: int, encoding: int
) -> None:
    for seed in range(examples(5) // 5):
        table = table_of(Random(f"{version} {codec} {encoding} {seed}"))
        assert_rows(repaged(table, Layout([77, 1000], version, None, codec, encoding=encoding)), table)


@pytest.mark.parametrize(("codec", "encoding", "dictionary"), [(0, 0, False), (1, 5, False), (2, 0, True)])
def test_levels_of_the_deprecated_encoding_come_back(codec: int, encoding: int, dictionary: bool) -> None:
    table = table_of(Random(f"{codec} {encoding}"))
    for index, writer in product((None, "begun"), (b"parquet-mr version 0.9", b"impala version 2.11.0")):
        layout = Layout([50, 13], 1, index, codec, dictionary, encoding=encoding, packed=True, writer=writer)
        assert_rows(repaged(table, layout), table)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_pages_without_entries_change_nothing(version: int, dictionary: bool) -> None:
    table = table_of(Random(4))
    for codec, index, encoding in product((0, 1), (None, "begun"), (0, 5)):
        assert_rows(
            repaged(table, Layout([60], version, index, codec, dictionary, encoding=encoding, empty=True)), table
        )


def test_a_dictionary_that_has_a_value_twice_gives_the_values_of_its_indices() -> None:
    table = pa.table({"text": ["a", "a", "b", "c"] * 20})
    assert_rows(repaged(table, Layout([1000], dictionary=True)), table)


@pytest.mark.parametrize("version", [1, 2])
def test_damaged_differences_are_an_error_or_rows_never_a_crash(version: int) -> None:
    table = pa.table({"int": pa.array(INT32S * 40, pa.int32()), "text": [*WORDS, *WORDS] * 13 + WORDS[:4]})
    dice = Random(5)
    for encoding in DELTAS:
        data = repaged(table, Layout([50], version, encoding=encoding))
        end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(examples(100)):
            damaged = bytearray(data)
            damaged[dice.randrange(4, end)] ^= 1 << dice.randrange(8)
            reader = BytesReader(bytes(damaged))
            source = open_source(reader, "parquet")
            for name in table.column_names:
                try:
                    source.fetch(reader, [(row, 0) for row in range(0, 160, 9)], [name])
                    for _ in source.scan(reader, [name]):
                        pass
                except DamagedSource as error:
                    assert error.column == name or name in str(error)  # noqa: PT017 - rows are as good an end
