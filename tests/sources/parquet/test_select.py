"""Single rows from pages equal the rows of pyarrow, for all types, encodings, codecs and page versions."""

import datetime as dt
import decimal
import io
from collections.abc import Callable
from random import Random
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.base import kernel
from gnomon.base.varints import encode_unsigned
from gnomon.sources import DamagedSource, MappedFile, open_source
from gnomon.sources.parquet import read_plan
from gnomon.sources.parquet import reader as parquet_reader
from gnomon.sources.parquet.page_header import read_header
from gnomon.sources.parquet.page_values import RUNS, flags_at, values_at
from gnomon.sources.parquet.row_reads import RowRead
from tests.profiles import examples
from tests.sources.parquet.test_known_rows import Pages
from tests.sources.parquet_files import flat_table, nested_table, written
from tests.sources.readers import BytesReader

ROWS = 400
WORDS = ["", "a", "\0\0\0\0", "naïve 名", "x" * 300, "y" * 65_536]
Maker = Callable[[Random], Any]
FLAT: dict[pa.DataType, Maker] = {
    pa.bool_(): lambda dice: dice.random() < 0.5,
    pa.int8(): lambda dice: dice.randrange(-128, 128),
    pa.uint16(): lambda dice: dice.randrange(1 << 16),
    pa.int32(): lambda dice: dice.randrange(-(1 << 31), 1 << 31),
    pa.int64(): lambda dice: dice.randrange(-(1 << 63), 1 << 63),
    pa.uint64(): lambda dice: dice.randrange(5),
    pa.float32(): lambda dice: float(np.float32(dice.random())),
    pa.float64(): lambda dice: dice.choice((0.0, -0.0, 1.5, dice.random())),
    pa.string(): lambda dice: dice.choice(WORDS) + str(dice.randrange(50)),
    pa.large_binary(): lambda dice: dice.randbytes(dice.randrange(20)),
    pa.binary(5): lambda dice: dice.randbytes(5),
    pa.decimal128(7, 2): lambda dice: decimal.Decimal(dice.randrange(10**7)) / 100,
    pa.date32(): lambda dice: dt.date(2000, 1, 1) + dt.timedelta(dice.randrange(9000)),
    pa.timestamp("us", "UTC"): lambda dice: dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(dice.randrange(99)),
    pa.timestamp("ns"): lambda dice: dice.randrange(1 << 60),
}
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def many(make: Maker, nulls: float, most: int = 4) -> Maker:
    """A list of up to `most` values, some of them null."""
    return lambda dice: [maybe(make, nulls)(dice) for _ in range(dice.randrange(most))]


def maybe(make: Maker, nulls: float) -> Maker:
    return lambda dice: None if dice.random() < nulls else make(dice)


def nested(kind: pa.DataType, make: Maker, nulls: float, dice: Random) -> tuple[pa.DataType, Maker]:
    """A type around `kind`, and the maker of its values."""
    inner = maybe(make, nulls)
    shapes: list[tuple[pa.DataType, Maker]] = [
        (pa.list_(kind), many(make, nulls, dice.choice((4, 40)))),
        (pa.list_(pa.list_(kind)), many(many(make, nulls), nulls)),
        (
            pa.struct([("x", kind), ("y", pa.list_(pa.string()))]),
            lambda dice: {"x": inner(dice), "y": maybe(many(FLAT[pa.string()], nulls), nulls)(dice)},
        ),
        (pa.map_(pa.string(), kind), lambda dice: [(f"k{i}", inner(dice)) for i in range(dice.randrange(3))]),
        (pa.list_(pa.struct([("x", kind)])), many(lambda dice: {"x": inner(dice)}, nulls)),
        (
            pa.struct([("s", pa.struct([("x", kind)]))]),
            lambda dice: {"s": maybe(lambda d: {"x": inner(d)}, nulls)(dice)},
        ),
    ]
    return dice.choice(shapes)


def random_table(dice: Random, deep: bool) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    fields = []
    for i, kind in enumerate(dice.sample(list(FLAT), 5)):
        nulls = dice.choice((0, 0.1, 0.5, 1))
        make = FLAT[kind]
        if dice.random() < 0.4:  # few different values, for dictionaries and long runs
            few = [make(dice) for _ in range(dice.choice((1, 3, 20)))]
            make = lambda dice, few=few: dice.choice(few)  # noqa: E731
        if deep:
            kind, make = nested(kind, make, nulls, dice)
        values = [maybe(make, nulls)(dice) for _ in range(ROWS)]
        if nulls == 0.5:
            values[100:300] = [None] * 200
        columns[f"c{i}"] = pa.array(values, kind)
        fields.append(pa.field(f"c{i}", kind, nullable=nulls > 0))
    return pa.table(columns, schema=pa.schema(fields))


def random_options(dice: Random) -> dict[str, Any]:
    options = {
        "compression": dice.choice(CODECS),
        "data_page_version": dice.choice(("1.0", "2.0")),
        "write_page_index": dice.random() < 0.6,
        "write_page_checksum": dice.random() < 0.3,
        "use_dictionary": dice.random() < 0.6,
        "row_group_size": dice.choice((ROWS, 150)),
        "data_page_size": dice.choice((64, 1000, 1 << 20)),
        "write_batch_size": dice.choice((8, 64, 1024)),
        "store_schema": dice.random() < 0.8,
    }
    if dice.random() < 0.3:
        options["dictionary_pagesize_limit"] = 100
    return options


def assert_rows_are_pyarrows(table: pa.Table, options: dict[str, Any], dice: Random) -> None:
    data = written(table, **options)
    whole = pq.read_table(io.BytesIO(data), coerce_int96_timestamp_unit="us")
    reader = BytesReader(data)
    source = open_source(reader, "parquet")
    for rows in ([dice.randrange(ROWS)], sorted(dice.sample(range(ROWS), 5)), list(range(0, ROWS, 3))):
        found = source.fetch(reader, [(row, 0) for row in rows], table.column_names)
        found.validate(full=True)
        assert found.schema.types == whole.schema.types
        assert repr(found.to_pylist()) == repr(whole.take(rows).to_pylist()), (options, rows)  # repr: NaN, -0.0


@pytest.mark.parametrize("deep", [False, True], ids=["flat", "nested"])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 1 << 32))
def test_rows_of_random_tables_are_what_pyarrow_reads(deep: bool, seed: int) -> None:
    dice = Random(seed)
    assert_rows_are_pyarrows(random_table(dice, deep), random_options(dice), dice)


@pytest.fixture
def picks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each read column of a row group: whether its rows were selected from their pages."""
    seen: list[bool] = []
    plan = parquet_reader.ReadPlanner.plan

    def spied(self: Any, *args: Any) -> Any:
        reads = plan(self, *args)
        seen.extend(isinstance(read, RowRead) for read in reads)
        return reads

    monkeypatch.setattr(parquet_reader.ReadPlanner, "plan", spied)
    return seen


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_row_is_decoded_alone_whatever_the_codec(codec: str, version: str, picks: list[bool]) -> None:
    table = flat_table()
    reader = BytesReader(written(table, compression=codec, data_page_version=version))
    source = open_source(reader, "parquet")
    for row in range(0, 300, 7):
        assert source.fetch(reader, [(row, 0)], table.column_names).to_pylist() == table.slice(row, 1).to_pylist()
    assert picks
    assert all(picks)


@pytest.mark.parametrize(
    ("version", "index", "picked"),
    [("1.0", True, True), ("2.0", False, True), ("2.0", True, True), ("1.0", False, False)],
)
def test_nested_rows_are_decoded_alone_where_page_bounds_are_known(
    version: str, index: bool, picked: bool, picks: list[bool]
) -> None:
    table = nested_table().select(["numbers", "map"])
    reader = BytesReader(written(table, data_page_version=version, write_page_index=index))
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(77, 0)], table.column_names).to_pylist() == table.slice(77, 1).to_pylist()
    assert picks == [picked, picked]


@pytest.mark.parametrize("encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
def test_pages_of_other_encodings_are_decoded_whole(encoding: str, picks: list[bool]) -> None:
    table = flat_table().select(["id"])
    options = {"use_dictionary": False, "column_encoding": {"id": encoding}}
    reader = BytesReader(written(table, **options))
    assert open_source(reader, "parquet").fetch(reader, [(77, 0)], ["id"]).to_pylist() == [{"id": 77}]
    assert picks == [False]


def test_a_chunk_that_conceals_an_encoding_is_read_again_and_decoded_whole(picks: list[bool]) -> None:
    table = pa.table({"id": range(300)})
    data = written(table, use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED"}, row_group_size=300)
    listed = b"\x25\x06\x0a"  # encodings of the chunk: RLE and DELTA_BINARY_PACKED
    assert data.count(b"\x29\x25\x06\x0a") + data.count(b"\x19\x25\x06\x0a") == 1, listed
    reader = BytesReader(data.replace(b"\x19\x25\x06\x0a", b"\x19\x25\x06\x00"))
    source = open_source(reader, "parquet")
    assert source.fetch(reader, [(77, 0)], ["id"]).to_pylist() == [{"id": 77}]
    assert picks == [True]


def test_few_rows_of_a_page_are_decoded_alone_and_many_are_decoded_with_it(picks: list[bool]) -> None:
    table = pa.table({"id": range(1000)})
    reader = BytesReader(written(table, row_group_size=1000, data_page_size=1 << 20, use_dictionary=False))
    source = open_source(reader, "parquet")
    for count in (8, 11):
        rows = range(0, 90 * count, 90)
        assert source.fetch(reader, [(row, 0) for row in rows], ["id"])["id"].to_pylist() == list(rows)
    assert picks == [True, False]


@pytest.mark.skipif(not kernel.COMPILED, reason="pyarrow is faster than picks with loops in Python")
def test_up_to_a_hundredth_of_the_rows_of_a_page_is_picked_from_it(picks: list[bool]) -> None:
    table = pa.table({"id": range(10_000)})
    data = written(table, row_group_size=10_000, data_page_size=1 << 20, use_dictionary=False, compression="snappy")
    reader, pages = BytesReader(data), Pages()
    source = open_source(reader, "parquet")
    cast(MappedFile, source).keep_in(pages)
    for count, kept in ((100, 0), (101, 0), (9, 1), (17, 1)):  # a page of more than 16 picked rows is not kept
        rows = range(0, 99 * count, 99)
        assert source.fetch(reader, [(row, 0) for row in rows], ["id"])["id"].to_pylist() == list(rows)
        assert len(pages) == kept
    assert picks == [True, False, True, True]


@pytest.mark.skipif(not kernel.COMPILED, reason="pyarrow is faster than picks with loops in Python")
def test_the_longer_the_values_the_more_rows_of_a_page_are_picked_from_it(picks: list[bool]) -> None:
    texts = [f"{i:04}" * 100 for i in range(1000)]
    data = written(pa.table({"text": texts}), row_group_size=1000, data_page_size=1 << 20, use_dictionary=False)
    reader = BytesReader(data)
    source = open_source(reader, "parquet")
    for step in (11, 9):  # a tenth has 400 of the 4,000 bytes of a value with which all rows are picked
        rows = range(0, 1000, step)
        found = source.fetch(reader, [(row, 0) for row in rows], ["text"])
        assert found["text"].to_pylist() == texts[::step]
    assert picks == [True, False]


@pytest.mark.skipif(not kernel.COMPILED, reason="pyarrow is faster than picks with loops in Python")
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_many_picked_rows_are_those_that_pyarrow_decodes(
    version: str, codec: str, picks: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    count, dice = 20_000, np.random.default_rng(7)
    numbers = dice.integers(0, 1 << 40, count)
    columns: dict[str, pa.Array] = {
        "number": pa.array(numbers),
        "text": pa.array([f"text {number} " * (number % 3) for number in numbers.tolist()]),
        "few": pa.array([f"word {number % 300}" for number in numbers.tolist()]),
        "flag": pa.array(numbers % 2 == 1),
        "real": pa.array(dice.random(count)),
        "day": pa.array((numbers % 40_000).astype(np.int32)).cast(pa.date32()),
    }
    nulls = {
        f"{name} or null": pa.array(one.to_pylist(), one.type, mask=dice.random(count) < 0.2)
        for name, one in columns.items()
    }
    table = pa.table({**columns, **nulls})
    options: dict[str, Any] = {"use_dictionary": ["few", "few or null"], "data_page_version": version}
    data = written(table, row_group_size=count, data_page_size=1 << 16, compression=codec, **options)
    for wanted, together in ((700, 16 << 20), (2000, 1 << 15), (20_000, 1 << 17)):
        rows = np.sort(dice.choice(count, wanted, replace=False))
        monkeypatch.setattr(read_plan, "SPARSE", 1.0)
        monkeypatch.setattr(read_plan, "TOGETHER", together)
        monkeypatch.setattr(read_plan, "PART", together)
        reader = BytesReader(data)
        picks.clear()
        found = open_source(reader, "parquet").fetch(reader, [(row, 0) for row in rows.tolist()], table.column_names)
        assert found.equals(table.take(pa.array(rows)))
        assert all(picks)


@pytest.mark.skipif(not kernel.COMPILED, reason="pyarrow decodes whole pages where loops are in Python")
@pytest.mark.parametrize("column", ["word", "flag", "number", "text"])
def test_a_page_whose_levels_or_values_do_not_end_with_it_is_left_to_pyarrow(column: str, picks: list[bool]) -> None:
    """Without a checksum, the sum of the lengths of runs is the only sign that one of them is damaged."""
    some = [None if i % 7 == 3 else i for i in range(400)]
    makers: dict[str, Callable[[int], Any]] = {
        "word": lambda i: f"word {i % 9}",
        "flag": lambda i: i % 3 == 0,
        "number": lambda i: i,
        "text": lambda i: f"text {i}",
    }
    values = [None if i is None else makers[column](i) for i in some]
    options: dict[str, Any] = {"compression": "none", "row_group_size": 400, "data_page_size": 1 << 20}
    data = written(pa.table({column: values}), use_dictionary=column == "word", **options)
    wrong = 0
    for bit in range(8 * 4, 8 * 150):  # of the header of a page, its levels, and its first values
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        outcomes: list[list[Any] | None] = []
        for rows in ([5, 390], range(400)):  # picked, and decoded by pyarrow
            reader = BytesReader(bytes(damaged))
            try:
                found = open_source(reader, "parquet").fetch(reader, [(row, 0) for row in rows], [column])
                outcomes.append(found.column(column).to_pylist())
            except (DamagedSource, UnicodeDecodeError):
                outcomes.append(None)
        picked, whole = outcomes
        if picked is not None and whole is not None:
            assert picked == [whole[5], whole[390]]
        wrong += picked is not None and whole is None and picked != [values[5], values[390]]
    assert wrong == 0


def test_a_dictionary_is_read_once_and_counted(picks: list[bool]) -> None:
    table = pa.table({"word": [f"word {i % 50}" for i in range(1000)]})
    reader = BytesReader(written(table, row_group_size=1000))
    source = open_source(reader, "parquet")
    source.fetch(reader, [(3, 0)], ["word"])
    before, _ = source.cache_bytes, reader.forget()
    assert source.fetch(reader, [(777, 0)], ["word"]).to_pylist() == [{"word": "word 27"}]
    assert len(reader.reads) == 1
    assert source.cache_bytes - before == (613 if kernel.COMPILED else 0)  # the map of the page
    assert before > 600


def test_a_page_that_unpacks_to_fewer_bytes_than_it_says_is_damage() -> None:
    for codec in CODECS[1:]:
        table = pa.table({"text": ["abcdefgh" * 20] * 64})
        data = written(table, compression=codec, use_dictionary=False, row_group_size=64, data_page_size=1 << 20)
        size = read_header(data, 4).uncompressed
        true, claim = encode_unsigned(size << 1), encode_unsigned((size + 40) << 1)
        at = data.index(true, 4)
        assert at < 10
        reader = BytesReader(data[:at] + claim + data[at + len(true) :], "lake/a")
        with pytest.raises(DamagedSource, match=r"lake/a at byte 4: column text: row group 0"):
            open_source(reader, "parquet").fetch(reader, [(63, 0)], ["text"])


def hybrid(dice: Random, numbers: list[int], width: int) -> bytes:
    """`numbers` in runs of random kinds and lengths."""
    out, at = b"", 0
    while at < len(numbers):
        same = 1
        while at + same < len(numbers) and numbers[at + same] == numbers[at] and dice.random() < 0.9:
            same += 1
        if dice.random() < 0.5:
            out += encode_unsigned(same << 1) + numbers[at].to_bytes((width + 7) // 8, "little")
            at += same
            continue
        groups = dice.randrange(1, 4)
        if at + 8 * groups > len(numbers):  # the last run is padded
            groups = (len(numbers) - at + 7) // 8
        packed = sum(number << (i * width) for i, number in enumerate(numbers[at : at + 8 * groups]))
        out += encode_unsigned(groups << 1 | 1) + packed.to_bytes(groups * width, "little")
        at += 8 * groups
    return out


@settings(max_examples=examples(150))
@given(seed=st.integers(0, 1 << 32), width=st.integers(1, 20), count=st.integers(1, 40 * RUNS))
def test_numbers_of_the_hybrid_are_found_wherever_they_stand(seed: int, width: int, count: int) -> None:
    dice = Random(seed)
    repeat = dice.choice((1, 3, 30))
    numbers = [dice.randrange(1 << width) for _ in range(count // repeat + 1) for _ in range(repeat)][:count]
    data = memoryview(hybrid(dice, numbers, width))
    positions = sorted(dice.sample(range(count), min(count, 5)))
    assert values_at(data, width, positions, 1 << width) == [numbers[p] for p in positions]
    flags = [number & 1 for number in numbers]
    expected = [(bool(flags[p]), sum(flags[:p])) for p in positions]
    assert flags_at(memoryview(hybrid(dice, flags, 1)), positions) == expected


def test_the_hybrid_knows_its_end_and_its_limits() -> None:
    run = memoryview(b"\x08\x05")  # four times 5
    assert values_at(run, 3, [0, 3], 6) == [5, 5]
    for positions, width, limit in (([4], 3, 6), ([0], 3, 5), ([0], 2, 4)):
        with pytest.raises(ValueError):
            values_at(run, width, positions, limit)
    with pytest.raises(ValueError, match="run of packed numbers"):
        flags_at(memoryview(b"\x05\xff"), [8])
