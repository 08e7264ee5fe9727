"""Decoders of the rows of a schema: source is generated and compiled once for each choice of columns.

A compiled decoder takes about half the time of fastavro for a row. It skips columns that are not requested, and limits
memory and stack: fastavro crashes the process on deep recursion.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.base.varints import OverlongVarint, decode_unsigned
from gnomon.sources.avro.columns import Column, ColumnFactory, Program, arrow_field, wrong_branch
from gnomon.sources.avro.container import Malformed
from gnomon.sources.avro.recursive_json import Budget, read_length
from gnomon.sources.avro.schema import Record, parse_schema

VALUE = "value"  # the only column of rows that are not records
KEPT_DECODERS = 16  # decoders of one schema
KEPT_SCHEMAS = 32  # schemas of a process: the files of a table share one
LONGEST_KEPT = 256 << 10  # bytes of a schema's text
CELLS = 1 << 22  # rows times columns of a batch
END = sys.maxsize

Reading = Callable[[bytes, int, int, int], tuple[int, int]]
Skipping = Callable[[bytes, int, int], int]


class RowSchema:
    """The columns of a file's rows. Files with the same schema text share it, and so do threads."""

    def __init__(self, text: bytes, of_iceberg: bool = False) -> None:
        root, columns = parse_schema(text, of_iceberg), ColumnFactory()
        if isinstance(root, Record):
            fields = [(name, columns.column(node, (root,))) for name, node in root.fields]
            self.arrow = pa.schema([arrow_field(root, name, column) for name, column in fields])
        else:
            fields = [(VALUE, columns.column(root))]
            self.arrow = pa.schema([pa.field(name, column.type) for name, column in fields])
        self.least = sum(column.least for _, column in fields)  # bytes of the shortest row
        self.text_bytes = len(text)
        self._fields = fields
        self._places: dict[str, int] = {}
        for place, (name, _) in enumerate(fields):  # if fields share a name, it means the first of them
            self._places.setdefault(name, place)
        self._decoders: dict[tuple[int, ...], Decoder] = {}
        self._lock = threading.Lock()

    def decoder(self, names: Sequence[str]) -> "Decoder":
        """The decoder of these columns. KeyError for an unknown column."""
        places = tuple(self._places[name] for name in names)
        with self._lock:
            found = self._decoders.pop(places, None)
            if found is None:
                found = Decoder([column for _, column in self._fields], places, self.arrow)
                if len(self._decoders) >= KEPT_DECODERS:
                    self._decoders.pop(next(iter(self._decoders)))
            self._decoders[places] = found
        return found


def row_schema(text: bytes, of_iceberg: bool = False) -> RowSchema:
    """The schema of this text. `of_iceberg` as in `parse_schema`. Raises Malformed and LimitExceeded."""
    return _kept_schema(text, of_iceberg) if len(text) <= LONGEST_KEPT else RowSchema(text, of_iceberg)


_kept_schema = lru_cache(KEPT_SCHEMAS)(RowSchema)


class Decoder:
    """Reads some columns of a schema. Safe to share between threads: the values read go to a `Batch`."""

    def __init__(self, columns: Sequence[Column], places: Sequence[int], schema: pa.Schema) -> None:
        self.schema = pa.schema([schema.field(place) for place in places])
        self.columns = [columns[place] for place in places]
        self.most_rows = max(CELLS // max(sum(column.leaves for column in self.columns), 1), 1)  # rows of a batch
        program = Program()
        wanted = set(places)
        with program.function("b, p, n, stop") as reads:
            with program.block("for i in range(1, n + 1):"):
                for place, column in enumerate(columns):
                    (column.read if place in wanted else column.skip)(program)
                program.line("if p > stop: return p, i")
            program.line("return p, n")
        with program.function("b, p, n") as skips:
            with program.block("for _ in range(n):"):
                for column in columns:
                    column.skip(program)
            program.line("return p")
        self.lists = program.lists
        self._constants = program.constants
        names: dict[str, Any] = {}
        exec(compile(program.text(f"{reads}, {skips}"), "<decoder of Avro rows>", "exec"), names)
        self._make = names["make"]

    def functions(self, lists: dict[int, list[Any]]) -> tuple[Reading, Skipping]:
        """The function that reads rows into these lists, and the function that skips rows."""
        made = self._make(lists, self._constants, decode_unsigned, read_length, wrong_branch, Budget())
        return cast(tuple[Reading, Skipping], made)


class Batch:
    """Rows that are read and become Arrow arrays."""

    def __init__(self, decoder: Decoder) -> None:
        self.rows = 0
        self.bytes = 0  # bytes of records read
        self._decoder = decoder
        self._lists: dict[int, list[Any]] = {number: [] for number in decoder.lists}
        self._read, self._skip = decoder.functions(self._lists)

    def read(self, records: bytes, position: int, rows: int, stop: int = END) -> tuple[int, int]:
        """Read `rows` rows, or fewer, up to and with the first row that ends after `stop`. Returns the position after
        them and their number."""
        try:
            end, done = self._read(records, position, rows, stop)
        except IndexError:
            end, done = len(records) + 1, 0
        except OverlongVarint as error:
            raise Malformed(str(error)) from None
        if end > len(records):
            raise Malformed("the records end inside the last one")
        self.rows += done
        self.bytes += end - position
        return end, done

    def skip(self, records: bytes, position: int, rows: int) -> int:
        """Skip rows; returns the position after them."""
        try:
            return self._skip(records, position, rows)
        except IndexError:
            raise Malformed("the records end inside the last one") from None
        except OverlongVarint as error:
            raise Malformed(str(error)) from None

    def arrays(self) -> list[pa.Array]:
        """The columns read. Malformed, with the column's name, for a value that its type does not have."""
        made: dict[Column, pa.Array] = {}
        for field, column in zip(self._decoder.schema, self._decoder.columns, strict=True):
            if column in made:
                continue
            try:
                made[column] = column.build(self._lists, self.rows)
            except (ValueError, OverflowError, pa.ArrowException) as error:
                check_memory(error)
                raise Malformed(f"column {field.name!r}: {error}") from error
        return [made[column] for column in self._decoder.columns]
