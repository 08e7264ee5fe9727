"""JSON lines: one value in a line (LF or CRLF). Blank lines are skipped.

A JSON text of several lines is an error: its first line is not a value.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gnomon.base.readers import RangeReader
from gnomon.sources.contract import Options
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.text.grammar import Positions, check_utf8, mean_bytes
from gnomon.sources.text.open_text import OPTIONS, Opened, read_ends
from gnomon.sources.text.text_file import TextFile
from gnomon.sources.types import (
    SPACES,
    JsonColumns,
    RefusedValue,
    Shape,
    TooManyNames,
    infer_rows,
    parse_ddl,
    schema_of,
    to_ddl,
)

SCHEMA = "schema"
JSON_OPTIONS: Mapping[str, str] = {
    SCHEMA: "the columns, as Spark's DDL; default: inferred from all rows",
    **OPTIONS,
}
HEAD_BYTES = 64 << 10
LF, CR = 10, 13
LEADING_SPACE = np.array([*SPACES], dtype=np.uint8)


def open_jsonl(reader: RangeReader, options: Options) -> TextFile:
    """Open a file of JSON lines with the schema of the option `schema`. Without that option, the whole file is read to
    infer one; the schema of a damaged file comes from the rows before the damage, which a scan reports."""
    opened = read_ends(reader, options, HEAD_BYTES)
    if SCHEMA in options:
        return _file(opened, parse_ddl(options[SCHEMA]))
    shape = Shape()
    with suppress(DamagedSource):
        _infer(reader, opened, shape)
    return _file(opened, parse_ddl(to_ddl(schema_of(shape))))


def infer_jsonl(reader: RangeReader, options: Options) -> pa.Schema:
    """The schema of all rows, by the rules of `gnomon.sources.types.json_schema`."""
    shape = Shape()
    _infer(reader, read_ends(reader, options, HEAD_BYTES), shape)
    return schema_of(shape)


def _infer(reader: RangeReader, opened: Opened, shape: Shape) -> None:
    for base, block in _file(opened, pa.schema([])).blocks(reader, 0, opened.size):
        rows, refused = len(block.starts), None
        while rows:
            try:
                infer_rows(shape, block.texts(0, rows))
                break
            # invalid UTF-8 before any row was seen; an invalid row after the rows before it were
            except RefusedValue as error:
                refused, rows = refused or error, error.index
        if refused is not None:
            kind = UnsupportedFormat if isinstance(refused, TooManyNames) else DamagedSource
            raise kind(str(refused), opened.path, base + int(block.starts[refused.index])) from None


def _file(opened: Opened, schema: pa.Schema) -> TextFile:
    grammar = JsonGrammar(schema)
    row_bytes = mean_bytes(grammar.find(opened.head[opened.first :], opened.complete))
    return TextFile(opened, grammar, opened.first, row_bytes)


class JsonGrammar:
    splittable = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._readers: dict[tuple[str, ...], JsonColumns] = {}
        self.reader_of(schema.names)

    def reader_of(self, columns: Sequence[str]) -> JsonColumns:
        made = self._readers.get(tuple(columns))
        if made is None:
            made = self._readers[tuple(columns)] = JsonColumns(self.schema, columns)
        return made

    def find(self, data: bytes, final: bool) -> "JsonBlock":
        return JsonBlock(self, data, final)

    def end_of(self, data: bytes, begin: int, final: bool) -> int | None:
        end = data.find(b"\n", begin)
        if end < 0:
            return len(data) if final else None
        return end - 1 if end > begin and data[end - 1] == CR else end

    def next_line(self, data: bytes) -> int | None:
        return data.find(b"\n") + 1 or None

    def parts(self, before: int, after: int) -> bool:
        return before == LF


class JsonBlock:
    def __init__(self, grammar: JsonGrammar, data: bytes, final: bool) -> None:
        self._grammar = grammar
        self.data = data
        array = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(array == LF)
        self.consumed = int(ends[-1]) + 1 if len(ends) else 0
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        if final and self.consumed < len(data):
            starts, ends = np.append(starts, self.consumed), np.append(ends, len(data))
            self.consumed = len(data)
        ends = ends - ((ends > starts) & (array[np.maximum(ends - 1, 0)] == CR) if len(ends) else 0)
        self.starts, self.ends = self._without_blank(array, starts, ends)

    def _without_blank(
        self, array: NDArray[np.uint8], starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        kept = starts < ends
        starts, ends = starts[kept], ends[kept]
        suspects = np.flatnonzero(np.isin(array[starts], LEADING_SPACE)).tolist()
        blank = [i for i in suspects if not self.data[starts[i] : ends[i]].strip(SPACES)]
        return np.delete(starts, blank), np.delete(ends, blank)

    def texts(self, begin: int, end: int) -> list[bytes]:
        starts, ends = self.starts[begin:end], self.ends[begin:end]
        check_utf8(self.data, starts, ends)
        return [self.data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def ragged(self, rows: int) -> int:
        return 0

    def read(self, begin: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        return self._grammar.reader_of(columns).read(self.texts(begin, end))
