"""Small Parquet files of every kind that writers can make, for the tests of `gnomon.sources.parquet`."""

import datetime as dt
import decimal
import io
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import and_, eq
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.base.varints import encode_signed, encode_unsigned
from gnomon.sources.parquet import thrift
from gnomon.sources.parquet.footer import CODECS, MAGIC, Chunk, Leaf, parse_footer
from gnomon.sources.parquet.page_header import read_header
from gnomon.sources.parquet.page_values import level_section
from gnomon.sources.parquet.synthetic_file import decode_hybrid
from tests.sources.corpora import ROOT, files_of

ROWS = 300


def written(table: pa.Table, **options: Any) -> bytes:
    """A file with several row groups of several tiny pages, unless `options` change that."""
    settings = {"row_group_size": 128, "data_page_size": 256, "write_batch_size": 16, **options}
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **settings)
    return buffer.getvalue()


def flat_table(rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "name": [None if i % 11 == 3 else f"name {i % 17}" for i in range(rows)],
            "text": [f"{i}" * (i % 9) for i in range(rows)],
            "score": [None if i % 5 == 0 else i / 3 for i in range(rows)],
            "flag": [None if i % 7 == 0 else i % 2 == 0 for i in range(rows)],
            "nothing": pa.array([None] * rows, pa.int32()),
        }
    )


def nested_table(rows: int = ROWS) -> pa.Table:
    kind = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "numbers": [None if i % 6 == 5 else [j if j % 2 else None for j in range(i % 4)] for i in range(rows)],
            "point": pa.array(
                [None if i % 8 == 1 else {"x": i, "tags": [f"t{i}"] * (i % 3)} for i in range(rows)], kind
            ),
            "map": pa.array([[(f"k{i}", i)] * (i % 2) for i in range(rows)], pa.map_(pa.string(), pa.int64())),
        }
    )


def typed_table(rows: int = 40) -> pa.Table:
    """One column of every flat type that Parquet keeps."""
    day = dt.date(2020, 1, 1)
    instants = [dt.datetime(2020, 1, 1) + dt.timedelta(hours=i, microseconds=i) for i in range(rows)]
    columns: dict[str, pa.Array] = {
        "large_string": pa.array([f"v{i}" for i in range(rows)], pa.large_string()),
        "large_binary": pa.array([bytes([i]) for i in range(rows)], pa.large_binary()),
        "fixed": pa.array([bytes([i]) * 5 for i in range(rows)], pa.binary(5)),
        "uuid": pa.array([bytes([i]) * 16 for i in range(rows)], pa.uuid()),
        "uint8": pa.array(range(rows), pa.uint8()),
        "uint64": pa.array([2**64 - 1 - i for i in range(rows)], pa.uint64()),
        "half": pa.array([float(i) for i in range(rows)], pa.float16()),
        "decimal": pa.array([decimal.Decimal(i) / 100 for i in range(rows)], pa.decimal128(20, 2)),
        "big_decimal": pa.array([decimal.Decimal(i) for i in range(rows)], pa.decimal256(60, 0)),
        "date": pa.array([day + dt.timedelta(days=i) for i in range(rows)]),
        "time": pa.array(range(rows), pa.time64("us")),
        "duration": pa.array(range(rows), pa.duration("ms")),
        "instant": pa.array(instants, pa.timestamp("us", "Europe/Paris")),
        "local": pa.array(range(rows), pa.timestamp("ns")),
        "null": pa.nulls(rows),
    }
    return pa.table(columns)


FUZZED: tuple[dict[str, Any], ...] = (
    {},
    {"write_page_index": True, "compression": "zstd"},
    {"data_page_version": "2.0", "compression": "gzip"},
    {"data_page_version": "2.0", "write_page_index": True, "use_dictionary": False, "compression": "none"},
    {"write_page_index": True, "dictionary_pagesize_limit": 64, "compression": "lz4"},
    {"use_dictionary": False, "compression": "brotli", "row_group_size": 10},
)
FUZZED_BYTES = 20_000  # larger files of the corpora are not tried: most changes would hit their data


@cache
def seeds() -> list[tuple[bytes, Mapping[str, str]]]:
    """Sound files for the fuzzer: ours, and the small ones of the corpora, if present."""
    tables = (flat_table(40), nested_table(40), typed_table())
    files = [written(table, **options) for table in tables for options in FUZZED]
    foreign = [ROOT / entry.values[0]["file"] for entry in files_of("parquet", "good")]
    files += [path.read_bytes() for path in foreign if path.stat().st_size < FUZZED_BYTES]
    return [(data, {}) for data in files]


class Layout(NamedTuple):
    """How `repaged` cuts a chunk into pages. `entries`: of a page, for each leaf in turn. `index`: the first rows in an
    OffsetIndex count the rows that began before the page ("begun"), or the row that goes on in it is its first
    ("touched"); None for no index. `lie` is added to a number that a writer should count: the first rows of the index
    after the first page, the rows in headers of version 2, or the values of a chunk. `encoding`: PLAIN, or a DELTA
    encoding where it suits the type. `packed`: the levels of pages of version 1 are BIT_PACKED, as Impala packs them if
    it is the `writer`. `empty`: a page without entries follows each page."""

    entries: Sequence[int]
    version: int = 1
    index: str | None = None
    codec: int = 0
    dictionary: bool = False
    lie: tuple[str, int] = ("", 0)
    encoding: int = 0
    packed: bool = False
    empty: bool = False
    writer: bytes = b"a writer"


class Long(int):
    """A number of 64 bits in Thrift; others have 32."""


def repaged(table: pa.Table, layout: Layout) -> bytes:
    """The rows of a table in one row group, with pages that end anywhere, also within a row. Has no booleans."""
    whole = written(table, use_dictionary=False, compression="none", row_group_size=1 << 20, data_page_size=1 << 30)
    footer = parse_footer(whole[-8 - int.from_bytes(whole[-8:-4], "little") : -8])
    out, chunks, indexes = bytearray(MAGIC), [], []
    for leaf in [leaf for column in footer.columns for leaf in column.leaves]:
        chunk = footer.row_groups[0].chunks[leaf.ordinal]
        start, first = len(out), 0
        repetitions, definitions, values = _entries_of(whole, chunk, leaf)
        if layout.dictionary:
            out += _page({7: {1: len(values), 2: 0}}, 2, b"", b"".join(values), layout.codec)
        data_start, step, places = len(out), layout.entries[leaf.ordinal % len(layout.entries)], []
        for begin in range(0, chunk.values, step):
            levels = repetitions[begin : begin + step], definitions[begin : begin + step]
            before = definitions[:begin].count(leaf.definitions)
            begun = first - (levels[0][0] > 0 and layout.index == "touched")
            begun += layout.lie[1] if begin and layout.lie[0] == "index" else 0
            first += levels[0].count(0)
            for each, row in [(levels, begun), (([], []), first)][: 1 + layout.empty]:
                page = _data_page(leaf, each, values, before, layout)
                places.append((len(out), len(page), row))
                out += page
        count, size = chunk.values + (layout.lie[1] if layout.lie[0] == "values" else 0), Long(len(out) - start)
        meta = {
            1: leaf.kind,
            2: [0, 3, layout.encoding],
            3: leaf.path,
            4: layout.codec,
            5: Long(count),
            6: size,
            7: size,
        }
        meta |= {9: Long(data_start)} | ({11: Long(start)} if layout.dictionary else {})
        chunks.append({2: Long(0), 3: meta})
        indexes.append(_struct({1: [{1: Long(at), 2: length, 3: Long(row)} for at, length, row in places]}))
    for made, index in zip(chunks, indexes, strict=True):
        if layout.index:
            made |= {4: Long(len(out)), 5: len(index)}
            out += index
    root = _struct({4: b"schema", 5: len(footer.columns)})
    elements = thrift.array(thrift.STRUCT, [root, *(one.raw for column in footer.columns for one in column.elements)])
    rows = Long(table.num_rows)
    group = {1: chunks, 2: Long(len(out)), 3: rows}
    body = thrift.open_struct([(1, thrift.I32, thrift.integer(1)), (2, thrift.LIST, elements)])
    body += thrift.open_struct([_field(3, rows), _field(4, [group]), _field(6, layout.writer)], after=2) + b"\0"
    return bytes(out) + body + len(body).to_bytes(4, "little") + MAGIC


def _entries_of(data: bytes, chunk: Chunk, leaf: Leaf) -> tuple[list[int], list[int], list[bytes]]:
    """The levels and the PLAIN values of a chunk with one page."""
    header = read_header(data, chunk.start)
    body = memoryview(data)[chunk.start + header.length :][: header.compressed]
    assert header.values == chunk.values
    levels = []
    for highest in (leaf.repetitions, leaf.definitions):
        section, body = level_section(body) if highest else (b"", body)
        width = highest.bit_length()
        levels.append(
            decode_hybrid(section, width, chunk.values, 1 << width).tolist() if highest else [0] * chunk.values
        )
    values, at = [], 0
    while at < len(body):
        width = leaf.width or 4 + int.from_bytes(body[at : at + 4], "little")
        values.append(bytes(body[at : at + width]))
        at += width
    return levels[0], levels[1], values


def _data_page(leaf: Leaf, levels: Sequence[list[int]], values: list[bytes], before: int, layout: Layout) -> bytes:
    present = levels[1].count(leaf.definitions)
    entries, encoding = len(levels[0]), layout.encoding if layout.encoding in DELTAS_OF.get(leaf.kind, ()) else 0
    body = delta_coded(values[before : before + present], encoding, leaf.kind)
    if layout.dictionary:
        width, encoding = max(len(values) - 1, 1).bit_length(), 8
        runs = [
            encode_unsigned(2) + number.to_bytes((width + 7) // 8, "little")
            for number in range(before, before + present)
        ]
        body = bytes([width]) + b"".join(runs)
    runs = [
        b"".join([encode_unsigned(2) + bytes([level]) for level in each]) if highest else b""
        for each, highest in zip(levels, (leaf.repetitions, leaf.definitions), strict=True)
    ]
    if layout.version == 1 and layout.packed:
        packed = [
            _packed_levels(each, highest.bit_length(), layout.writer.startswith(b"impala"))
            for each, highest in zip(levels, (leaf.repetitions, leaf.definitions), strict=True)
        ]
        return _page({5: {1: entries, 2: encoding, 3: 4, 4: 4}}, 0, b"", b"".join([*packed, body]), layout.codec)
    if layout.version == 1:
        sections = [len(run).to_bytes(4, "little") + run if run else b"" for run in runs]
        return _page({5: {1: entries, 2: encoding, 3: 3, 4: 3}}, 0, b"", b"".join([*sections, body]), layout.codec)
    rows = levels[0].count(0) + (layout.lie[1] if layout.lie[0] == "rows" else 0)
    own = {1: entries, 2: entries - present, 3: rows, 4: encoding, 5: len(runs[1]), 6: len(runs[0])}
    return _page({8: own}, 3, b"".join(runs), body, layout.codec)


DELTAS_OF = {1: (5,), 2: (5,), 6: (6, 7), 7: (7,)}  # encodings of physical types


def delta_coded(values: Sequence[bytes], encoding: int, kind: int) -> bytes:
    """PLAIN values in an encoding."""
    if encoding == 0 or not values:
        return b"".join(values)
    if encoding == 5:
        bits = 8 * len(values[0])
        return _delta_packed([int.from_bytes(value, "little", signed=True) for value in values], bits)
    texts = [value[4:] if kind == 6 else value for value in values]
    if encoding == 6:
        return _delta_packed(list(map(len, texts)), 32) + b"".join(texts)
    prefixes = [0, *(sum(accumulate(map(eq, one, other), and_)) for one, other in pairwise(texts))]
    suffixes = [text[prefix:] for text, prefix in zip(texts, prefixes, strict=True)]
    return _delta_packed(prefixes, 32) + _delta_packed(list(map(len, suffixes)), 32) + b"".join(suffixes)


def _delta_packed(numbers: Sequence[int], bits: int) -> bytes:
    """DELTA_BINARY_PACKED. Differences of 32-bit numbers do not wrap, so they may have 33 bits; those of 64 bits do."""
    out = encode_unsigned(128) + encode_unsigned(4) + encode_unsigned(len(numbers)) + encode_signed(numbers[0])
    steps = [b - a for a, b in pairwise(numbers)]
    if bits == 64:
        steps = [(step + (1 << 63)) % (1 << 64) - (1 << 63) for step in steps]
    for begin in range(0, len(steps), 128):
        block = steps[begin : begin + 128]
        least = min(block)
        pieces = [[step - least for step in block[i : i + 32]] for i in range(0, 128, 32)]
        widths = [max(piece, default=0).bit_length() for piece in pieces]
        out += encode_signed(least) + bytes(widths)
        for piece, width in zip(pieces, widths, strict=True):
            packed = sum(step << (i * width) for i, step in enumerate(piece))
            out += packed.to_bytes(4 * width, "little") if piece else b""
    return out


def _packed_levels(levels: Sequence[int], width: int, upwards: bool) -> bytes:
    """BIT_PACKED: the first level in the highest bits, or `upwards` in the lowest."""
    size = (len(levels) * width + 7) // 8
    if upwards:
        return sum(level << (i * width) for i, level in enumerate(levels)).to_bytes(size, "little")
    packed = 0
    for level in levels:
        packed = packed << width | level
    return (packed << (8 * size - len(levels) * width)).to_bytes(size, "big")


def _page(own: dict[int, Any], kind: int, levels: bytes, body: bytes, codec: int) -> bytes:
    packed = pa.Codec(CODECS[codec].lower()).compress(body, asbytes=True) if codec else body
    return _struct({1: kind, 2: len(levels) + len(body), 3: len(levels) + len(packed), **own}) + levels + packed


def _struct(fields: Mapping[int, Any]) -> bytes:
    """A Thrift struct of numbers, bytes, names, structs, and lists of numbers or structs."""
    return thrift.struct([_field(number, fields[number]) for number in sorted(fields)])


def _field(number: int, value: Any) -> tuple[int, int, bytes]:
    if isinstance(value, int):
        return number, thrift.I64 if isinstance(value, Long) else thrift.I32, thrift.integer(value)
    if isinstance(value, bytes):
        return number, thrift.BINARY, thrift.binary(value)
    if isinstance(value, tuple):
        return number, thrift.LIST, thrift.array(thrift.BINARY, [thrift.binary(name) for name in value])
    if isinstance(value, list) and isinstance(value[0], int):
        return number, thrift.LIST, thrift.array(thrift.I32, [thrift.integer(each) for each in value])
    if isinstance(value, list):
        return number, thrift.LIST, thrift.array(thrift.STRUCT, [_struct(one) for one in value])
    return number, thrift.STRUCT, _struct(value)
