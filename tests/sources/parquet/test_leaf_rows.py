"""Rows of a leaf as Arrow arrays, without a Parquet file in memory: they equal pyarrow's."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from gnomon.sources import DamagedSource, open_source
from gnomon.sources.parquet import row_reads
from gnomon.sources.parquet.footer import BINARY, Column, Leaf
from gnomon.sources.parquet.page_values import LeafRows
from gnomon.sources.parquet.row_reads import MOST_ROWS, build_array, has_arrow_layout
from tests.sources.parquet_files import written
from tests.sources.readers import BytesReader

ROWS = 500
TYPES: dict[pa.DataType, Any] = {
    pa.int32(): lambda dice: dice.randrange(-(1 << 31), 1 << 31),
    pa.date32(): lambda dice: dice.randrange(-(1 << 20), 1 << 20),
    pa.int64(): lambda dice: dice.randrange(-(1 << 63), 1 << 63),
    pa.timestamp("ms"): lambda dice: dice.randrange(1 << 50),
    pa.timestamp("us", "Europe/Berlin"): lambda dice: dice.randrange(1 << 60),
    pa.timestamp("ns", "UTC"): lambda dice: dice.randrange(1 << 62),
    pa.timestamp("s"): lambda dice: dice.randrange(1 << 33),  # stored in milliseconds
    pa.float32(): lambda dice: float(dice.randrange(1 << 20)),
    pa.float64(): lambda dice: dice.choice((-0.0, float("inf"), dice.random())),
    pa.string(): lambda dice: dice.choice(("", "a", "\0", "näme", "x" * 3000)),
    pa.binary(): lambda dice: dice.randbytes(dice.randrange(9)),
    pa.bool_(): lambda dice: dice.random() < 0.5,  # pyarrow reads this type and those below
    pa.int8(): lambda dice: dice.randrange(-128, 128),
    pa.uint32(): lambda dice: dice.randrange(1 << 32),
    pa.large_string(): lambda dice: dice.choice(("", "b")),
    pa.duration("us"): lambda dice: dice.randrange(1 << 40),
    pa.date64(): lambda dice: dice.randrange(1 << 14) * 86_400_000,
    pa.time64("us"): lambda dice: dice.randrange(86_400_000_000),
}


def table(dice: Random) -> pa.Table:
    columns = {}
    for number, (kind, make) in enumerate(TYPES.items()):
        nulls = dice.choice((0.0, 0.3, 1.0))
        values = [None if dice.random() < nulls else make(dice) for _ in range(ROWS)]
        columns[f"c{number}"] = pa.array(values, kind)
    return pa.table(columns)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [1, 2, MOST_ROWS, MOST_ROWS + 1])
def test_rows_are_those_that_pyarrow_makes(rows: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(seed)
    whole = table(dice)
    data = written(whole, use_dictionary=dice.random() < 0.5, data_page_size=4096)
    wanted = sorted(dice.sample(range(ROWS), rows))
    found = {}
    for most in (MOST_ROWS, 0):
        monkeypatch.setattr(row_reads, "MOST_ROWS", most)
        reader = BytesReader(data)
        source = open_source(reader, "parquet")
        found[most] = source.fetch(reader, [(row, 0) for row in wanted], whole.column_names)
        found[most].validate(full=True)
    assert found[MOST_ROWS].equals(found[0])
    assert found[0].equals(whole.take(wanted).cast(found[0].schema).replace_schema_metadata(None))


def test_a_row_of_plain_columns_is_made_without_a_parquet_file(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pa.table({"key": ["a", "b"], "number": pa.array([1, None], pa.int64())})
    reader = BytesReader(written(whole))
    source = open_source(reader, "parquet")
    monkeypatch.setattr(row_reads, "decode_leaves", None)
    assert source.fetch(reader, [(1, 0)], ["key", "number"]).to_pylist() == [{"key": "b", "number": None}]


def test_texts_beyond_what_arrow_counts_are_an_error_of_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BytesReader(written(pa.table({"key": ["a" * 50, "b"]})))
    source = open_source(reader, "parquet")
    monkeypatch.setattr(row_reads, "LONGEST", 40)
    assert source.fetch(reader, [(1, 0)], ["key"]).to_pylist() == [{"key": "b"}]
    with pytest.raises(DamagedSource, match=r"column key: .*byte arrays of 54 bytes in one column"):
        source.fetch(reader, [(0, 0)], ["key"])


def column(physical: int, width: int) -> Column:
    leaf = Leaf(0, physical, (b"c",), width, 0, 1)
    return Column(0, "c", (), (leaf,), True, False)


@pytest.mark.parametrize(
    ("physical", "kind", "rows"),
    [
        (row_reads.INT64, pa.int64(), LeafRows(1, b"", b"\1", bytes(7))),
        (row_reads.INT64, pa.int64(), LeafRows(2, b"", b"\1\0", bytes(16))),
        (row_reads.INT32, pa.int32(), LeafRows(2, b"", b"\1", bytes(4))),
        (BINARY, pa.string(), LeafRows(1, b"", b"\1", b"\3\0\0\0ab")),
        (BINARY, pa.string(), LeafRows(1, b"", b"\1", b"\1\0\0\0ab")),
        (BINARY, pa.string(), LeafRows(1, b"", b"\1", b"\1")),
        (BINARY, pa.string(), LeafRows(1, b"", b"\0", b"\0\0\0\0")),
    ],
    ids=str,
)
def test_values_that_are_not_as_many_as_their_levels_say_are_refused(
    physical: int, kind: pa.DataType, rows: LeafRows
) -> None:
    of = column(physical, {row_reads.INT64: 8, row_reads.INT32: 4}.get(physical, 0))
    assert has_arrow_layout(of, kind, rows.entries)
    with pytest.raises(pa.ArrowInvalid):
        build_array(of, kind, rows)


def test_int96_values_are_the_microseconds_that_pyarrow_makes_of_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(5)
    instants = [None if dice.random() < 0.2 else dice.randrange(1 << 60) for _ in range(ROWS)]
    times = pa.array(instants, pa.timestamp("ns"))
    data = bytearray(
        written(
            pa.table({"at": times}),
            use_deprecated_int96_timestamps=True,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            data_page_size=1 << 20,
            row_group_size=ROWS,
        )
    )
    first = next(time for time in instants if time is not None)
    day, nanoseconds = divmod(first, 86_400_000_000_000)
    begin = data.index(nanoseconds.to_bytes(8, "little") + (day + 2_440_588).to_bytes(4, "little"))
    for at in range(begin, begin + 12 * 50):
        data[at] = dice.randrange(256)
    data[begin + 12 * 40 + 8 : begin + 12 * 41] = bytes(4)  # day 0, which pyarrow takes for a null
    found = {}
    for most in (MOST_ROWS, 0):
        monkeypatch.setattr(row_reads, "MOST_ROWS", most)
        reader = BytesReader(bytes(data))
        source = open_source(reader, "parquet")
        found[most] = [
            source.fetch(reader, [(row, 0), (row + 1, 0)], ["at"])["at"].cast(pa.int64()) for row in range(ROWS - 1)
        ]
    assert found[MOST_ROWS] == found[0]
    assert 0 in [value for rows in found[0] for value in rows.to_pylist()]
    assert source.schema.field("at").type == pa.timestamp("us", "UTC")
