"""CSV through the public functions: records, fields, options, splits."""

import csv
import gzip
import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnomon.sources import DamagedSource, OptionError, SourceFile, StalePointer, UnsupportedFormat, detect, open_source
from gnomon.sources.literals import RefusedValue
from gnomon.sources.pointers import OFFSET, SIZE
from gnomon.sources.text import infer_csv, merge_csv
from gnomon.sources.text.csv_block import CsvBlock, Dialect
from gnomon.sources.text.text_file import PIECE_BYTES
from gnomon.sources.types.ddl import to_ddl
from tests.profiles import examples
from tests.sources.readers import BytesReader
from tests.sources.source_contract import Sample, SourceContract, pointers_of

ROWS = 400
RULE = Dialect(b",", b'"', b"", True, "")


def flat_rows(rows: int = ROWS) -> list[dict[str, object]]:
    return [{"id": i, "name": f"name {i}", "note": None if i % 3 else "a,b", "x": i / 4} for i in range(rows)]


def written(rows: list[dict[str, object]], **options: Any) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, **options)
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return text.getvalue().encode()


def opened(data: bytes, name: str = "lake/x.csv", **options: str) -> tuple[BytesReader, SourceFile]:
    reader = BytesReader(data, name)
    return reader, open_source(reader, "csv", options)


def read(data: bytes, name: str = "lake/x.csv", **options: str) -> list[tuple[object, ...]]:
    """The rows of a scan, after a check of their fetches and of the places of their records."""
    reader, source = opened(data, name, **options)
    names = source.schema.names
    rows: list[dict[str, object]] = []
    for batch in source.scan(reader, names):
        rows += pa.table(batch).select(names).to_pylist()
        pointers = pointers_of([batch])
        assert source.fetch(reader, pointers, names).equals(pa.table(batch).select(names))
        for (offset, _), size in zip(pointers, batch[SIZE].to_pylist(), strict=True):
            assert data[offset + size : offset + size + 1] in (b"", b"\r", b"\n") or "whole_file" in options
    return [tuple(row.values()) for row in rows]


class TextContract(SourceContract):
    def test_a_cut_file_gives_an_error_that_names_it(self, sample: Sample) -> None:
        """Text has no end mark: the rest of a cut file is a valid file."""
        for kept in (0, 3, len(sample.data) // 3):
            reader = BytesReader(sample.data[:kept], "lake/cut")
            try:
                source = sample.open(reader)
                rows = [row for batch in source.scan(reader, source.schema.names) for row in batch.to_pylist()]
            except DamagedSource as error:
                assert error.path == "lake/cut"  # noqa: PT017 - either is right
                continue
            whole = sample.rows[: max(len(rows) - 1, 0)]
            assert [{name: row[name] for name in source.schema.names} for row in rows[:-1]] == whole


class TestOneLineEach(TextContract):
    @pytest.fixture
    def sample(self) -> Sample:
        rows = flat_rows()
        options = {"schema": "id bigint, name string, note string, x double", "multiline": "false"}
        return Sample(written(rows), "csv", rows, one_row_bytes=5000, options=options, knows_rows=False)


class TestLinesInFields(TextContract):
    @pytest.fixture
    def sample(self) -> Sample:
        rows = [{"id": str(i), "text": f'{i} \n\r\n, "quoted" é' * (i % 5) + "."} for i in range(ROWS)]
        return Sample(written(rows), "csv", rows, one_row_bytes=5000, knows_rows=False)


class TestIrregularRecords(TextContract):
    """A quote within a field, records of several widths."""

    @pytest.fixture
    def sample(self) -> Sample:
        data = b"".join(b'%d,5" disk\r\n"%d"st\r\n' % (i, i) for i in range(ROWS))
        rows = [row for i in range(ROWS) for row in ({"_c0": str(i), "_c1": '5" disk'}, {"_c0": f"{i}st", "_c1": None})]
        options = {"header": "false", "multiline": "false"}
        return Sample(data, "csv", rows, one_row_bytes=5000, options=options, knows_rows=False)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a,b\n1,x\n2,y\n", [("1", "x"), ("2", "y")]),
        (b"a,b\n1,x\n2,y", [("1", "x"), ("2", "y")]),
        (b"a,b\r\n1,x\r\n2,y\r\n", [("1", "x"), ("2", "y")]),
        (b"a,b\r1,x\r2,y\r", [("1", "x"), ("2", "y")]),
        (b"\xef\xbb\xbfa,b\n1,x\n", [("1", "x")]),
        (b"\n\r\na,b\n\n\n1,x\n\r\n\n2,y\n\n", [("1", "x"), ("2", "y")]),
        (b'a,b\n"1","x\ny"\n', [("1", "x\ny")]),
        (b'a,b\n"1","x ""q"""\n"","\r\n"\n', [("1", 'x "q"'), ("", "\r\n")]),
        (b'a,b\n,""\n"",\n', [(None, ""), ("", None)]),
        (b"a,b\n1\n,\n", [("1", None), (None, None)]),
        (b'a,b\n1,x"y"z\n2, "q"\n3,"c"d"e\n', [("1", 'x"y"z'), ("2", ' "q"'), ("3", 'cd"e')]),
        (b"a,b\n1,\x00\n", [("1", "\0")]),
        (b"a,b\n1,x,y\n2,z\n", [("1", "x", "y"), ("2", "z", None)]),
        (b"a,b\n", []),
        (b"a,b", []),
        (b"", []),
        (b"\n\n", []),
    ],
)
def test_records_and_fields(data: bytes, rows: list[tuple[object, ...]]) -> None:
    assert read(data) == rows


def test_of_no_header_the_names_are_sparks() -> None:
    reader, source = opened(b"1,x\n2,y,z\n", header="false")
    assert source.schema == pa.schema([(f"_c{i}", pa.string()) for i in range(3)])
    assert source.rows is None
    assert pointers_of(source.scan(reader, [])) == [(0, 0), (4, 0)]


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (b"a,,c", ["a", "_c1", "c"]),
        (b"a,b,a", ["a0", "b", "a2"]),
        (b'"a b","c""d","e\nf"', ["a b", 'c"d', "e\nf"]),
        (b"_c1,", ["_c1", "_c1_"]),
    ],
)
def test_names_of_a_header_that_are_empty_or_repeat(header: bytes, names: list[str]) -> None:
    assert opened(header + b"\n")[1].schema.names == names


def test_a_schema_goes_by_the_names_of_the_header() -> None:
    data = b"b,a,c\nx,1,2020-01-31\n"
    assert to_ddl(opened(data, schema="a bigint, c date, not_there int")[1].schema) == "b string, a bigint, c date"
    assert read(data, schema="x string, y int, z string") == [("x", 1, "2020-01-31")]
    assert read(data, header="false", schema="x string, y string, z string")[0] == ("b", "a", "c")


@pytest.mark.parametrize(
    ("name", "options", "data"),
    [
        ("x.csv", {"delimiter": ";"}, b"a;b\n1;x,y\n"),
        ("x.csv", {"delimiter": "\\t"}, b"a\tb\n1\tx,y\n"),
        ("x.csv", {"delimiter": "\\u0001"}, b"a\x01b\n1\x01x,y\n"),
        ("x.tsv", {}, b"a\tb\n1\tx,y\n"),
        ("x.TSV.gz", {"whole_file": "true"}, gzip.compress(b"a\tb\n1\tx,y\n", mtime=0)),
        ("x.csv", {"quote": "'"}, b"a,b\n1,'x,y'\n"),
        ("x.csv", {"escape": "\\"}, b'a,b\n1,"x,y"\n'),
        ("x.csv", {"multiline": "false"}, b'a,b\n1,"x,y"\n'),
        ("x.csv", {"encoding": "UTF-8"}, b'a,b\n1,"x,y"\n'),
    ],
)
def test_options(name: str, options: dict[str, str], data: bytes) -> None:
    assert read(data, name, **options) == [("1", "x,y")]


def test_escapes_quotes_and_nulls_are_what_the_options_say() -> None:
    assert read(b'a\n"x\\"y\\\\z\\n""q"\n', escape="\\") == [('x"y\\z\\n"q',)]
    assert read(b'a,b\n"1",2"\n', quote="") == [('"1"', '2"')]
    assert read(b'a,b\nNULL,"NULL"\n,x\n', null_value="NULL") == [(None, "NULL"), (None, "x")]
    assert read(b'a,b,c\nNULL,"NULL"\n', null_value="NULL") == [(None, "NULL", None)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "||"}, r"option delimiter: '\|\|' is not one ASCII character"),
        ({"delimiter": ""}, "option delimiter"),
        ({"delimiter": "é"}, "option delimiter"),
        ({"delimiter": '"'}, "is the quote or escape as well"),
        ({"quote": "\n"}, "option quote"),
        ({"header": "yes"}, "option header: expected true or false, found 'yes'"),
        ({"encoding": "latin-1"}, "option encoding: expected UTF-8, found latin-1"),
        ({"schema": "a array<int>"}, "option schema: column a: values of type list"),
        ({"schema": "a"}, "at character 1: expected a type"),
    ],
)
def test_options_it_does_not_take_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        opened(b"a,b\n", **options)


@pytest.mark.parametrize(
    ("data", "options", "offset", "message"),
    [
        (b"a,b\n1,x\n2,y\n", {"schema": "a int, b int"}, 4, "column b: expected an integer of 32 bits, found 'x'"),
        (
            b"a,b\n1,2\n\n3,2.5\n",
            {"schema": "a int, b int"},
            9,
            "column b: expected an integer of 32 bits, found '2.5'",
        ),
        (
            b"a\n1\n2,3\n",
            {"header": "false", "schema": "a string"},
            4,
            "a record of 2 fields, where 1 columns are known",
        ),
        (b'a,b\n1,x\n2,"y\n', {}, 8, "a quote that does not close before the file ends"),
        (b'a,b\n1,x\n2,"y\n3,z"\n', {"multiline": "false"}, 8, "a quote that does not close before the line ends"),
        (b"a,b\n1,x\n2,\xff\n", {}, 8, "a record that is not UTF-8: 0xff at its byte 2"),
        (b'a,b\n1,x\n2,"y\n3,"z"\n4,w\n', {}, 8, "text after a quote that opened in another line"),
        (b'a,b\r1,x\r2,"y\r3,"z"\r4,w\r', {}, 8, "text after a quote that opened in another line"),
        (b'a,b\n1,x\n2,"y\n3,\\"z"w"\n', {"escape": "\\"}, 8, "text after a quote that opened in another line"),
    ],
)
def test_damage_is_reported_with_its_place_and_the_rows_before_it(
    data: bytes, options: dict[str, str], offset: int, message: str
) -> None:
    reader, source = opened(data, **options)
    batches: list[pa.RecordBatch] = []
    with pytest.raises(DamagedSource, match=message) as caught:
        batches.extend(source.scan(reader, source.schema.names))
    assert (caught.value.path, caught.value.offset) == ("lake/x.csv", offset)
    assert sum(batch.num_rows for batch in batches) == len(read(data[:offset], **options))
    with pytest.raises((DamagedSource, StalePointer)):
        source.fetch(reader, [(offset, 0)], source.schema.names)


def test_text_after_a_quote_is_part_of_the_value_within_a_line_and_spaces_are_in_any_case() -> None:
    assert read(b'a,b\n1,"x"y\n2,"x\nz" \n') == [("1", "xy"), ("2", "x\nz ")]


def test_records_of_another_width_are_counted_by_scans() -> None:
    for data, options, ragged in (
        (b"a,b\n1,x\n2\n3,x,y\n\n4,z\n", {}, 2),
        (b"1,x\n2\n3,x\n", {"header": "false"}, 1),
        (b"a title\n1,x\n2,x\n", {"header": "false"}, 1),
        (b"a title\n1,x\n2,x\n", {"header": "false", "schema": "a string, b string"}, 1),
        (b"x" * 70_000 + b",y\nx,y\n", {"header": "false", "schema": "a string, b string"}, 0),
        (b"a,b\n1,x\n2,y\n", {"schema": "a int, b string, c string"}, 0),
    ):
        reader, source = opened(data, **options)
        assert source.ragged == 0
        for _ in source.scan(reader, source.schema.names):
            pass
        assert source.ragged == ragged


def test_headers_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(DamagedSource, match=r"lake/x\.csv at byte 0: the header: text after a quote that opened in"):
        opened(b'"a,b\n1,"2"\n')
    with pytest.raises(DamagedSource, match=r"lake/x\.csv at byte 0: the header: text after a quote that opened in"):
        opened(b'"a' + b"x" * 70_000 + b'\n"b,c\n' + b"1,2\n" * 20_000, schema="a string, b string")
    with pytest.raises(DamagedSource, match=r"lake/x\.csv at byte 0: a quote that does not close before the file ends"):
        opened(b'"a,b\n1,2\n')
    with pytest.raises(DamagedSource, match=r"lake/x\.csv at byte 1: the header: a record that is not UTF-8"):
        opened(b"\na,\xff\n1,2\n")
    with pytest.raises(UnsupportedFormat, match="the header does not end within 1048576 bytes"):
        opened(b"a" * (2 << 20))
    with pytest.raises(UnsupportedFormat, match="30001 columns, more than 20000"):
        opened(b"," * 30_000)
    with pytest.raises(UnsupportedFormat, match="UTF-16"):
        opened("a,b\n".encode("utf-16"))


@pytest.mark.parametrize("pointer", [(0, 0), (2, 0), (9, 0), (8, 1), (-1, 0), (16, 0), (99, 0), (4, 0)])
def test_a_pointer_to_no_record_is_stale(pointer: tuple[int, int]) -> None:
    reader, source = opened(b"a,b\n\n1,x\n\n2,yy\n")
    with pytest.raises(StalePointer, match="run gnomon build INDEX again") as caught:
        source.fetch(reader, [(5, 0), pointer], ["a"])
    assert caught.value.path == "lake/x.csv"


def test_a_column_the_file_does_not_have_is_a_mistake_of_the_caller() -> None:
    reader, source = opened(b"a,b\n1,2\n")
    with pytest.raises(KeyError, match="no column 'c'; it has a, b"):
        source.fetch(reader, [(4, 0)], ["c"])


def test_long_records_take_one_more_round_of_reads() -> None:
    long = b'"' + b"x\n" * 100_000 + b'"'
    reader, source = opened(b"a,b\n1,x\n2," + long + b"\n3,y\n" * 2)
    reader.forget()
    table = source.fetch(reader, [(8, 0), (4, 0)], ["b"])
    assert [len(value) for value in table["b"].to_pylist()] == [200_000, 1]
    assert reader.rounds <= 3
    reader.forget()
    source.fetch(reader, [(4, 0)], ["b"])
    assert reader.rounds == 1


def test_pointers_near_one_another_are_read_together() -> None:
    reader, source = opened(written(flat_rows(2000)))
    pointers = pointers_of(source.scan(reader, []))
    reader.forget()
    assert source.fetch(reader, pointers[100:600], ["id"])["id"].to_pylist() == [str(i) for i in range(100, 600)]
    assert len(reader.reads) == 1
    assert reader.bytes_read < 20_000


def test_records_over_the_ends_of_pieces_are_whole() -> None:
    rng = random.Random(1)
    fields = ['"' + "x\r\n" * rng.randrange(400_000) + '"' for _ in range(30)]
    data = b"a,b\r\n" + "".join(f"{i},{field}\r\n" for i, field in enumerate(fields)).encode()
    assert len(data) > 3 * PIECE_BYTES
    reader, source = opened(data)
    batches = list(source.scan(reader, ["a", "b"]))
    rows = [row for batch in batches for row in zip(batch["a"].to_pylist(), batch["b"].to_pylist(), strict=True)]
    assert [(int(a), f'"{b}"') for a, b in rows] == list(enumerate(fields))
    assert max(length for _, length in reader.reads) <= PIECE_BYTES


def test_a_quote_that_never_closes_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.sources.text.text_file.RECORD_LIMIT", 1 << 20)
    monkeypatch.setattr("gnomon.sources.text.text_file.PIECE_BYTES", 1 << 18)
    reader, source = opened(b'a,b\n1,x\n2,"' + b"y\n" * (4 << 20))
    with pytest.raises(DamagedSource, match="at byte 8: a record that does not end within 1048576 bytes"):
        list(source.scan(reader, ["a"]))
    assert reader.bytes_read < 5 << 20
    with pytest.raises(DamagedSource, match="at byte 8: a record that does not end within 1048576 bytes"):
        source.fetch(reader, [(8, 0)], ["a"])


def test_a_file_of_many_lines_is_scanned_in_bounded_batches() -> None:
    reader, source = opened(b"a\n" + b"1\n" * 200_000)
    batches = list(source.scan(reader, ["a"]))
    assert sum(batch.num_rows for batch in batches) == 200_000
    assert max(batch.num_rows for batch in batches) <= 64 << 10
    assert np.concatenate([batch[OFFSET].to_numpy() for batch in batches]).tolist() == list(range(2, 400_002, 2))


@pytest.mark.slow
def test_rows_of_many_columns_come_few_at_a_time() -> None:
    reader, source = opened(b"," * 9_999 + b"\n" + b"1\n" * 2_000, header="false")
    batches = list(source.scan(reader, source.schema.names))
    assert sum(batch.num_rows for batch in batches) == 2_001
    assert max(batch.nbytes for batch in batches) < 32 << 20


def test_a_row_of_as_many_columns_as_there_can_be_is_read_whole() -> None:
    data = b",".join(b"c%d" % i for i in range(20_000)) + b"\n" + b",".join(b"%d" % i for i in range(20_000)) + b"\n"
    reader, source = opened(data)
    (batch,) = source.scan(reader, source.schema.names)
    fetched = source.fetch(reader, [(data.index(b"\n") + 1, 0)], source.schema.names)
    assert [column[0].as_py() for column in fetched.columns] == [str(i) for i in range(20_000)]
    assert pa.table(batch).select(source.schema.names).equals(fetched)


def test_with_a_schema_little_is_read_to_open_a_file() -> None:
    data = written(flat_rows(20_000))
    reader, _ = opened(data, schema="id bigint")
    assert reader.rounds == 1
    assert reader.bytes_read <= 128 << 10
    wide = ",".join(f"column {i}" for i in range(9_000)).encode()
    assert len(opened(wide + b"\n1\n" * 100_000, schema="x int")[1].schema) == 9_000


@pytest.mark.slow
def test_the_columns_inferred_are_as_many_as_the_widest_record_has() -> None:
    data = b"a,b\n" + b"1,2\n" * 400_000 + b"1,2,3,4\n"
    with pytest.raises(DamagedSource, match="a record of 4 fields, where 2 columns are known; the option schema"):
        read(data)
    schema = infer_csv(BytesReader(data), {})
    assert to_ddl(schema) == "a string, b string, _c2 string, _c3 string"
    reader, source = opened(data, schema=to_ddl(schema))
    assert source.fetch(reader, [(4 + 4 * 400_000, 0)], ["_c3"]).to_pylist() == [{"_c3": "4"}]
    assert to_ddl(merge_csv([schema, infer_csv(BytesReader(b"c,a\n"), {})])) == to_ddl(schema) + ", c string"


def test_it_is_detected_by_the_name() -> None:
    for name in ("x.csv", "lake/x.TSV", "x.csv.gz", "x.csv.zst"):
        assert detect(BytesReader(b"a,b\n", name)) == "csv"


PIECES = st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\r", "a", "é", " ", "\\", "\ufeff", '"a"', '"\n"', ',"', '",', '"\n']
)


@settings(max_examples=examples(600))
@given(st.lists(PIECES, max_size=24).map("".join), st.booleans())
@example('"a""b",\n""\n', True)
@example('a\r\n\r\n"\r"\r', True)
@example("a\n\ufeffb\n", True)
def test_many_records_at_once_are_what_the_rule_says(text: str, final: bool) -> None:
    data = text.encode()
    schema = pa.schema([(f"_c{i}", pa.string()) for i in range(40)])
    rule, position = [], 0
    while position < len(data):
        try:
            record = RULE.record(data, position)
        except RefusedValue as error:
            with pytest.raises(RefusedValue, match=str(error)):
                CsvBlock(RULE, schema, data, final)
            return
        if record is None or (record[1] == len(data) and not final):
            break
        fields, end = record
        if end > position:
            rule.append((position, end, [value.decode() if value or quoted else None for value, quoted in fields]))
        position = end + (2 if data.startswith(b"\r\n", end) else 1)
    try:
        block = CsvBlock(RULE, schema, data, final)
    except ValueError:
        assert final
        assert RULE.record(data, position) is None
        return
    if data.endswith(b"\r") and not final:  # it may be half of a line end
        rule = rule[: len(block.starts)]
    assert list(zip(block.starts.tolist(), block.ends.tolist(), strict=True)) == [one[:2] for one in rule]
    for width in {len(one[2]) for one in rule}:
        same = [i for i, one in enumerate(rule) if len(one[2]) == width]
        fitting = CsvBlock(RULE, pa.schema(list(schema)[:width]), data, final)
        for i in same:
            rows = fitting.read(i, i + 1, fitting._schema.names).to_pylist()
            assert [list(row.values()) for row in rows] == [rule[i][2]]
