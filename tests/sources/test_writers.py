"""The contract of the writers of all formats."""

import itertools
import pickle
import re

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from gnomon.sources import (
    FORMATS,
    POINTER_COLUMNS,
    NotReadBack,
    SourceError,
    UnsupportedFormat,
    check_written,
    open_source,
    open_writer,
    style_of,
)
from gnomon.sources.declared_schema import DECLARED
from gnomon.sources.types.arrays import first_difference
from tests.sources.readers import BytesReader
from tests.sources.written import CASES, TEXTS, Case, rows_of, write, written

FORMAT_NAMES = list(CASES)


@pytest.fixture(params=FORMAT_NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def plain(case: Case, **columns: pa.Array) -> tuple[pa.Table, dict[str, str]]:
    """A small table of columns that all formats have, and the options of its source."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", None, "c"], **columns})
    return table, dict(case.options(table.schema))


def test_values_of_every_kind_come_back_as_they_were(case: Case) -> None:
    file = written(case.table, case.format, case.options())
    found = rows_of(file, case.format, case.options())
    assert found.schema.names == case.table.schema.names
    for name in found.schema.names:
        wanted, got = case.table[name].combine_chunks(), found[name].combine_chunks()
        if case.format != "orc":  # ORC has all timestamps in nanoseconds
            assert got.type == wanted.type, name
            assert first_difference(wanted, got) is None, name


@pytest.mark.parametrize("name", POINTER_COLUMNS)
def test_columns_may_be_called_like_those_of_a_pointer(case: Case, name: str) -> None:
    table, options = plain(case, **{name: pa.array([7, 8, None], pa.int64())})
    file = written(table, case.format, options)
    check_written(file.data, case.format, options, "f", table.to_batches())
    others = table.set_column(table.schema.get_field_index(name), name, pa.array([7, 9, None], pa.int64()))
    with pytest.raises(NotReadBack, match=f"column {name}: row 1: expected .*9.*, found .*8"):
        check_written(file.data, case.format, options, "f", others.to_batches())


def test_other_readers_find_the_same_values(case: Case) -> None:
    table = case.table.drop_columns(["float", "double"])  # NaN differs from itself
    table = table.drop_columns([name for name in ("record", "records") if name in table.schema.names])
    options = case.options(table.schema)
    file = written(table, case.format, options)
    source = pa.BufferReader(file.data)
    if case.format == "parquet":
        assert pq.read_table(source).to_pylist() == table.to_pylist()
    elif case.format == "orc":
        same = [name for name in table.schema.names if name not in ("instant", "local", "moments")]  # nanoseconds
        found = orc.read_table(source, columns=same)
        assert found.select(same).to_pylist() == table.select(same).to_pylist()
    elif case.format == "avro":
        rows = list(fastavro.reader(source))
        assert [row["text"] for row in rows] == TEXTS
        assert [row["price"] for row in rows] == table["price"].to_pylist()
        assert [row["instant"] for row in rows] == table["instant"].to_pylist()
        assert [None if row["map"] is None else list(row["map"].items()) for row in rows] == table["map"].to_pylist()


def test_a_file_like_one_that_was_written_has_its_columns_and_types(case: Case) -> None:
    first = written(case.table, case.format, case.options())
    again = written(case.table, case.format, case.options(), like=first)
    schemas = [open_source(file, case.format, case.options()).schema for file in (first, again)]
    assert schemas[0] == schemas[1]
    assert rows_of(again, case.format, case.options()).num_rows == case.table.num_rows
    assert abs(len(again.data) - len(first.data)) < 100


def test_a_style_can_be_sent_to_a_task(case: Case) -> None:
    file = written(case.table, case.format, case.options())
    for style in (style_of(None, case.format, case.options()), style_of(file, case.format, case.options())):
        sent = pickle.loads(pickle.dumps(style))
        assert sent == style
        assert sent.ending in (".parquet", ".avro", ".orc", ".csv", ".jsonl")
        assert write(case.format, sent, case.table.schema, case.table.to_batches()).size > 0


class Failing(BytesReader):
    """One of its reads, counted from 0, has other bytes."""

    def __init__(self, data: bytes, nth: int) -> None:
        super().__init__(data)
        self._nth = nth

    def _bytes(self, offset: int, length: int) -> bytes:
        data = super()._bytes(offset, length)
        return bytes(byte ^ 0x55 for byte in data) if len(self.reads) == self._nth + 1 else data


def test_a_file_whose_bytes_change_between_reads_gives_a_style_or_an_error_with_its_name(case: Case) -> None:
    data = written(case.table, case.format, case.options()).data
    refused = []
    for nth in itertools.count():
        reader = Failing(data, nth)
        try:
            style_of(reader, case.format, case.options())
        except SourceError as error:
            refused.append(error.path)
        if len(reader.reads) <= nth:
            break
    assert set(refused) <= {"memory/file"}
    assert refused or case.format in ("csv", "jsonl")


def test_a_column_that_the_files_lack_is_added(case: Case) -> None:
    table, options = plain(case)
    first = written(table, case.format, options)
    wider = table.append_column("more", pa.array([None, 2.5, 3.5]))
    options = dict(case.options(wider.schema))
    file = written(wider, case.format, options, like=first)
    assert rows_of(file, case.format, options).to_pylist() == wider.to_pylist()


def test_a_column_that_only_the_files_have_is_null(case: Case) -> None:
    table, options = plain(case, also=pa.array(["x", "y", "z"]))
    first = written(table, case.format, options)
    file = written(table.drop_columns(["also"]), case.format, options, like=first)
    assert rows_of(file, case.format, options)["also"].to_pylist() == [None] * 3
    assert rows_of(file, case.format, options)["text"].to_pylist() == ["a", None, "c"]


def test_the_order_of_columns_is_that_of_the_files(case: Case) -> None:
    table, options = plain(case)
    first = written(table, case.format, options)
    file = written(table.select(["text", "id"]), case.format, options, like=first)
    assert rows_of(file, case.format, options).to_pylist() == table.to_pylist()
    assert open_source(file, case.format, options).schema.names == ["id", "text"]


def test_a_column_that_has_become_wider_is_written_so(case: Case) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int32()), "m": pa.array([1, 2], pa.int32())})
    wider = pa.table({"n": pa.array([1, 2**40], pa.int64()), "m": pa.array([1, 2], pa.int32())})
    first = written(table, case.format, case.options(table.schema))
    options = case.options(wider.schema)
    file = written(wider, case.format, options, like=first)
    assert rows_of(file, case.format, options) == wider


def test_values_in_another_type_of_their_kind_are_taken_where_they_fit(case: Case) -> None:
    table, options = plain(case)
    writer = open_writer(style_of(None, case.format, options), table.schema, "lake/new")
    writer.write(pa.record_batch({"text": pa.array(["x"], pa.large_string()), "id": pa.array([7], pa.int16())}))
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column id: expected int64, found decimal128"):
        writer.write(pa.record_batch({"text": ["x"], "id": _beyond()}))
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column id: expected int64, found string"):
        writer.write(pa.record_batch({"text": ["x"], "id": ["1"]}))
    file = BytesReader(writer.finish(), f"new{FORMATS[case.format].endings[:1] or ''}")
    assert rows_of(file, case.format, options).to_pylist() == [{"id": 7, "text": "x"}]


def _beyond() -> pa.Array:
    """A number beyond 64 bits."""
    return pa.array(["100000000000000000000"]).cast(pa.decimal128(21, 0))


def test_an_instant_becomes_a_wall_clock_in_utc_alone() -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    writer = open_writer(style_of(None, "orc"), schema, "lake/new")
    writer.write(pa.record_batch({"at": pa.array([7], pa.timestamp("us", "UTC"))}))
    with pytest.raises(
        UnsupportedFormat, match=r"^lake/new: column at: expected timestamp\[us\], found .*Europe/Prague"
    ):
        writer.write(pa.record_batch({"at": pa.array([7], pa.timestamp("us", "Europe/Prague"))}))
    assert rows_of(BytesReader(writer.finish()), "orc", {})["at"].cast(pa.int64()).to_pylist() == [7000]
    writer = open_writer(style_of(None, "parquet"), pa.schema([("at", pa.timestamp("us", "UTC"))]), "lake/new")
    writer.write(pa.record_batch({"at": pa.array([7], pa.timestamp("us", "Europe/Prague"))}))
    assert rows_of(BytesReader(writer.finish()), "parquet", {})["at"].cast(pa.int64()).to_pylist() == [7]


def test_rows_of_other_columns_are_refused(case: Case) -> None:
    table, options = plain(case)
    writer = open_writer(style_of(None, case.format, options), table.schema, "lake/new")
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: columns id; expected id, text$"):
        writer.write(table.select(["id"]).to_batches()[0])
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: columns id, text, x; expected id, text$"):
        writer.write(table.append_column("x", [[1, 2, 3]]).to_batches()[0])


def test_a_file_is_rolled_over_by_its_size(case: Case) -> None:
    table = pa.table(
        {"id": pa.array(range(20_000), pa.int64()), "text": [f"{i * 7919 % 20011:x}" * 8 for i in range(20_000)]}
    )
    options, target = case.options(table.schema), 100_000
    style, sizes, rows = style_of(None, case.format, options), [], 0
    writer = open_writer(style, table.schema, "new")
    for batch in table.to_batches(max_chunksize=500):
        writer.write(batch)
        if writer.size >= target:
            data = writer.finish()
            sizes.append(len(data))
            rows += rows_of(BytesReader(data, f"new{style.ending}"), case.format, options).num_rows
            writer = open_writer(style, table.schema, "new")
    assert len(sizes) > 2
    assert target / 20 < min(sizes)  # until a row group or stripe is full, the writer counts its bytes in memory
    assert max(sizes) < 1.5 * target
    assert rows > 10_000


def test_the_read_back_names_column_and_row_of_what_differs(case: Case) -> None:
    table, options = plain(case, price=pa.array([0.0, 1.5, 2.5]))
    file = written(table, case.format, options)
    other = table.set_column(2, "price", pa.array([0.0, 1.5, 2.0])).to_batches(max_chunksize=2)
    with pytest.raises(
        NotReadBack, match=rf"^{re.escape(file.name)}: column price: row 2: expected .*2.*, found .*2.5"
    ):
        check_written(file.data, case.format, options, file.name, other)
    zero = table.set_column(2, "price", pa.array([-0.0, 1.5, 2.5])).to_batches()
    with pytest.raises(NotReadBack, match="column price: row 0"):
        check_written(file.data, case.format, options, file.name, zero)
    with pytest.raises(NotReadBack, match="the file gives 3 rows back; expected 2"):
        check_written(file.data, case.format, options, file.name, table.slice(0, 2).to_batches())
    with pytest.raises(NotReadBack, match="column x: not read back; expected id, text, price, x"):
        check_written(file.data, case.format, options, file.name, table.append_column("x", [[1, 2, 3]]).to_batches())
    with pytest.raises(NotReadBack, match=r"cannot be read|the file gives .* rows back|: row"):
        check_written(file.data[: len(file.data) // 2], case.format, options, file.name, table.to_batches())


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_a_declared_table_is_written_by_the_names_and_types_of_its_files(format: str) -> None:
    own = pa.table({"Id": pa.array([1, 2], pa.int32()), "At": pa.array([0, 5], pa.timestamp("us"))})
    first = written(own, format, {})
    options = {DECLARED: "id bigint, at timestamp, extra string"}
    table = pa.table(
        {"id": pa.array([2**40], pa.int64()), "at": pa.array([7], pa.timestamp("us", "UTC")), "extra": ["x"]}
    )
    file = written(table, format, options, like=first)
    assert rows_of(file, format, options) == table
    assert open_source(file, format).schema.names == ["Id", "At", "extra"]
    assert open_source(file, format).schema.field("At").type.tz is None


def test_columns_without_names_are_written_by_place() -> None:
    first = written(pa.table({"_col0": ["a"], "_col1": [1]}), "orc", {})
    options = {DECLARED: "name string, n bigint"}
    table = pa.table({"name": ["b"], "n": [2]})
    assert rows_of(written(table, "orc", options, like=first), "orc", options) == table


def test_lists_nested_deeper_than_arrow_passes_a_schema_are_written() -> None:
    """Arrow's C interface, which copies schemas, takes 64 levels."""
    kind: pa.DataType = pa.int32()
    value: object = 1
    for _ in range(80):
        kind, value = pa.list_(kind), [value]
    batch = pa.RecordBatch.from_pydict({"a": [value]}, schema=pa.schema([("a", kind)]))
    writer = open_writer(style_of(None, "orc"), batch.schema, "deep.orc")
    writer.write(batch)
    check_written(writer.finish(), "orc", None, "deep.orc", [batch])


def test_formats_that_are_not_written_say_so() -> None:
    with pytest.raises(
        UnsupportedFormat, match="Gnomon writes no files of format sequence; expected one of parquet, avro"
    ):
        style_of(None, "sequence")
    with pytest.raises(UnsupportedFormat, match="Gnomon writes no files of format xml"):
        style_of(None, "xml")
    with pytest.raises(UnsupportedFormat, match="no columns; expected one or more"):
        open_writer(style_of(None, "parquet"), pa.schema([]), "new")


def test_nan_is_nan_and_zero_has_its_sign_wherever_they_lie() -> None:
    nan = float("nan")
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        one, two = pa.array([nan, 0.0, None], kind), pa.array([nan, -0.0, None], kind)
        assert first_difference(one, one) is None
        assert first_difference(one, two) == 1
        lists = [pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), each) for each in (one, two)]
        assert first_difference(lists[0], lists[0]) is None
        assert first_difference(*lists) == 1
        records = [pa.StructArray.from_arrays([each], names=["x"]) for each in lists]
        assert first_difference(*records) == 1
        assert first_difference(records[0].slice(2), records[1].slice(2)) is None
    assert pc.is_nan(pa.scalar(nan)).as_py()
