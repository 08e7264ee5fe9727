"""JSON lines through the public functions: lines, given and inferred schemas, splits, compressed files."""

import bz2
import gzip
import json
import zlib

import pyarrow as pa
import pytest

from gnomon.base.compression import zstd
from gnomon.sources import DamagedSource, OptionError, SourceFile, StalePointer, UnsupportedFormat, detect, open_source
from gnomon.sources.pointers import OFFSET, SIZE
from gnomon.sources.text import infer_jsonl
from gnomon.sources.text.text_file import PIECE_BYTES
from gnomon.sources.types.ddl import to_ddl
from tests.profiles import positions
from tests.sources.readers import BytesReader
from tests.sources.source_contract import Sample, pointers_of
from tests.sources.text.test_csv import TextContract

ROWS = 300
SCHEMA = "id bigint, name string, more struct<x:double,tags:array<string>>"
PACKINGS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": zstd.compress,
    "deflate": zlib.compress,
}


def rows_written(rows: int = ROWS) -> list[dict[str, object]]:
    return [
        {"id": i, "name": None if i % 7 else f"näme {i}", "more": {"x": i / 4, "tags": ["a", f"{i}"] * (i % 4)}}
        for i in range(rows)
    ]


def written(rows: list[dict[str, object]], end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


def opened(data: bytes, name: str = "lake/x.jsonl", **options: str) -> tuple[BytesReader, SourceFile]:
    reader = BytesReader(data, name)
    return reader, open_source(reader, "jsonl", options)


def scanned(reader: BytesReader, source: SourceFile) -> list[dict[str, object]]:
    names = source.schema.names
    rows: list[dict[str, object]] = []
    for batch in source.scan(reader, names):
        rows += pa.table(batch).select(names).to_pylist()
        assert source.fetch(reader, pointers_of([batch]), names).equals(pa.table(batch).select(names))
    return rows


class TestGivenSchema(TextContract):
    @pytest.fixture
    def sample(self) -> Sample:
        rows = rows_written()
        options = {"schema": SCHEMA}
        return Sample(written(rows), "jsonl", rows, one_row_bytes=5000, options=options, knows_rows=False)


class TestInferredSchema(TextContract):
    @pytest.fixture
    def sample(self) -> Sample:
        rows = [{name: row[name] for name in sorted(row)} for row in rows_written()]
        for row in rows:
            row["more"] = {"tags": row["more"]["tags"], "x": row["more"]["x"]}  # type: ignore[index]
        return Sample(written(rows, "\r\n\r\n"), "jsonl", rows, one_row_bytes=5000, knows_rows=False)


def test_lines_are_where_the_pointers_say() -> None:
    data = b'\xef\xbb\xbf{"a":1}\n\n \t\r\n  {"a":2} \r\nnull\n{"a":3}'
    reader, source = opened(data)
    (batch,) = source.scan(reader, ["a"])
    assert batch.to_pydict() == {
        "a": [1, 2, None, 3],
        OFFSET: [3, 16, 28, 33],
        "data_sub_offset": [0] * 4,
        SIZE: [7, 10, 4, 7],
    }
    assert scanned(reader, source) == [{"a": 1}, {"a": 2}, {"a": None}, {"a": 3}]


@pytest.mark.parametrize("pointer", [(1, 0), (8, 0), (17, 0), (0, 1), (-8, 0), (99, 0)])
def test_a_pointer_to_no_line_is_stale(pointer: tuple[int, int]) -> None:
    reader, source = opened(b'{"a":1}\n\n{"a":2}\n')
    with pytest.raises(StalePointer, match="run gnomon build INDEX again"):
        source.fetch(reader, [(0, 0), pointer], ["a"])


@pytest.mark.slow
def test_without_a_schema_all_rows_are_looked_at() -> None:
    data = b'{"a":1}\n' * (PIECE_BYTES // 4) + b'{"a":1.5,"b":[{"c":null}]}\n'
    reader = BytesReader(data, "lake/x.json")
    assert to_ddl(infer_jsonl(reader, {})) == "a double, b array<struct<c:string>>"
    assert max(length for _, length in reader.reads) <= PIECE_BYTES
    reader, source = opened(data)
    assert source.fetch(reader, [(len(data) - 27, 0)], ["a", "b"]).to_pylist() == [{"a": 1.5, "b": [{"c": None}]}]


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        (b'{"a":', {}, "a line that is not one JSON value"),
        (b'{"a":1} {"a":2}', {}, "a line that is not one JSON value"),
        (b"{", {}, "a line that is not one JSON value"),
        (b"// a comment", {}, "a line that is not one JSON value"),
        (b'{"a":"\xff"}', {}, "a record that is not UTF-8: 0xff at its byte 6"),
        (b'{"b":"\xff"}', {"schema": "a bigint"}, "a record that is not UTF-8: 0xff at its byte 6"),
        (b'{"a":"x"}', {"schema": "a bigint"}, "column a: expected int64, found the string 'x'"),
        (b"[1]", {"schema": "a bigint"}, "expected an object, found"),
    ],
)
def test_damage_is_reported_with_its_place_and_the_rows_before_it(
    line: bytes, options: dict[str, str], message: str
) -> None:
    reader, source = opened(b'{"a":1}\n\n' + line + b'\n{"a":3}\n', **options)
    batches: list[pa.RecordBatch] = []
    with pytest.raises(DamagedSource, match=message) as caught:
        batches.extend(source.scan(reader, source.schema.names))
    assert (caught.value.path, caught.value.offset) == ("lake/x.jsonl", 9)
    assert [row["a"] for batch in batches for row in batch.to_pylist()] == [1]
    with pytest.raises(DamagedSource, match=message) as caught:
        source.fetch(reader, [(0, 0), (9, 0)], ["a"])
    assert caught.value.offset == 9


def test_an_index_is_not_built_on_a_schema_of_damaged_rows() -> None:
    with pytest.raises(DamagedSource, match=r"lake/x at byte 8: a line that is not one JSON value") as caught:
        infer_jsonl(BytesReader(b'{"a":1}\n{"a":\n2}\n', "lake/x"), {})
    assert caught.value.offset == 8


def test_objects_of_too_many_names_are_refused() -> None:
    data = b"".join(b'{"a%d":1}\n' % i for i in range(10_001))
    with pytest.raises(UnsupportedFormat, match="over 10000 different names: give the option schema"):
        opened(data)
    assert scanned(*opened(data, schema="a10000 int"))[-1] == {"a10000": 1}


def test_a_document_over_several_lines_is_damage() -> None:
    with pytest.raises(DamagedSource, match=r"lake/x\.jsonl at byte 0: a line that is not one JSON value"):
        scanned(*opened(json.dumps({"a": [1, 2]}, indent=1).encode()))


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_compressed_file_is_read_from_its_beginning_or_refused(packing: str) -> None:
    rows = rows_written()
    packed = PACKINGS[packing](written(rows[:200]))
    if packing in ("gzip", "bzip2", "zstd"):  # several streams may follow each other
        packed += PACKINGS[packing](written(rows[200:]))
    else:
        rows = rows[:200]
    with pytest.raises(UnsupportedFormat, match=f"compressed with {packing}, which cannot be read from the middle"):
        opened(packed)
    reader, source = opened(packed, whole_file="true", schema=SCHEMA)
    assert scanned(reader, source) == rows
    assert source.splits(10) == [(0, len(packed))]
    pointers = pointers_of(source.scan(reader, []))
    asked = [150, 3, 150, 0]
    assert source.fetch(reader, [pointers[i] for i in asked], ["id"])["id"].to_pylist() == asked
    with pytest.raises(StalePointer, match="no row begins there"):
        source.fetch(reader, [(pointers[5][0] + 1, 0)], ["id"])
    with pytest.raises(StalePointer, match="the text ends before it"):
        source.fetch(reader, [(1 << 40, 0)], ["id"])


@pytest.mark.parametrize("packing", PACKINGS)
def test_damaged_compressed_files_are_errors(packing: str) -> None:
    packed = PACKINGS[packing](written(rows_written(20)))
    for kept in positions(range(11, len(packed))):
        with pytest.raises(DamagedSource, match=r"truncated|cannot be unpacked") as caught:
            scanned(*opened(packed[:kept], whole_file="true", schema=SCHEMA))
        assert caught.value.path == "lake/x.jsonl"


def test_zero_bytes_after_gzip_text_are_padding_whatever_their_number() -> None:
    packed = gzip.compress(b'{"a":1}\n') + bytes(600 << 10)  # more than is read at a time
    assert scanned(*opened(packed, whole_file="true", schema="a bigint")) == [{"a": 1}]


@pytest.mark.slow
def test_much_text_in_few_bytes_is_unpacked_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b'{"a":1}\n' * 2_000_000)
    reader, source = opened(packed, whole_file="true", schema="a bigint")
    assert sum(batch.num_rows for batch in source.scan(reader, [])) == 2_000_000
    monkeypatch.setattr("gnomon.sources.text.text_file.RECORD_LIMIT", 1 << 20)
    bomb = gzip.compress(b'{"a":"' + b"x" * (32 << 20))
    with pytest.raises(DamagedSource, match="at byte 0: a record that does not end within 1048576 bytes"):
        list(opened(bomb, whole_file="true", schema="a string")[1].scan(BytesReader(bomb), ["a"]))


def test_options_it_does_not_take_are_refused_by_name() -> None:
    with pytest.raises(OptionError, match="option encoding: expected UTF-8, found utf-16"):
        opened(b"", encoding="utf-16")
    with pytest.raises(OptionError, match="map whose keys are not strings"):
        opened(b"", schema="a map<int,int>")


def test_it_is_detected_by_the_name() -> None:
    for name in ("x.json", "lake/x.JSONL", "x.ndjson", "x.json.gz", "x.jsonl.bz2"):
        assert detect(BytesReader(b"{}\n", name)) == "jsonl"


def test_an_empty_file_has_no_rows() -> None:
    reader, source = opened(b"")
    assert scanned(reader, source) == []
    assert source.schema == pa.schema([])


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("rows", [200, 2_000, 100_000])
def test_the_mean_bytes_of_a_row_are_those_in_the_compressed_file(packing: str, rows: int) -> None:
    text = b"".join(b'{"id": %d, "name": "name of %d"}\n' % (row, row * 7919 % rows) for row in range(rows))
    reader, source = opened(PACKINGS[packing](text), whole_file="true", schema=SCHEMA)
    assert rows / 1.5 < reader.size / source.row_bytes < rows * 1.5
