"""New files like the existing ones of a source: `style_of` copies schema, codec and dialect from one file,
`open_writer` writes a file, `check_written` reads it back and compares every row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from gnomon.base.errors import GnomonError, check_memory
from gnomon.base.readers import MemoryFile, RangeReader
from gnomon.sources.contract import Options, Style, Writer
from gnomon.sources.declared_schema import DECLARED, UNNAMED
from gnomon.sources.errors import DamagedSource, NotReadBack, SourceError, UnsupportedFormat
from gnomon.sources.parquet import ParquetStyle
from gnomon.sources.registry import FORMATS, open_source
from gnomon.sources.types import Unfit, first_difference, fit


def style_of(reader: RangeReader | None, format: str, options: Options | None = None) -> Style:
    """How new files of a source are written: like the file of `reader`, usually the newest one; for None in the
    format's default way. UnsupportedFormat for a format without a writer, or a file that the writer cannot imitate."""
    found = FORMATS.get(format)
    if found is None or found.style is None:
        written = ", ".join(name for name, one in FORMATS.items() if one.style is not None)
        path = "a new file" if reader is None else reader.name
        raise UnsupportedFormat(f"Gnomon writes no files of format {format}", path, expected=f"one of {written}")
    of_format = {name: value for name, value in (options or {}).items() if name != DECLARED}
    try:
        style = found.style(reader, of_format)
    except GnomonError:
        raise
    except (ValueError, LookupError) as error:  # it was opened without one, and read once more
        check_memory(error)
        path = "a new file" if reader is None else reader.name
        raise DamagedSource(f"it cannot be read a second time: {error}", path, 0) from error
    return DeclaredStyle(style) if reader is not None and DECLARED in (options or {}) else style


def table_style(fields: pa.Schema, codec: str) -> Style:
    """The style of new Parquet files of a table that says what they look like: columns with field ids and nullability,
    and Parquet's name of the codec."""
    return ParquetStyle(fields, codec)


def open_writer(style: Style, schema: pa.Schema, path: str) -> Writer:
    """A writer of one file of a source. `schema` has the columns in the types in which they are read. A column that the
    style's file lacks is added; a column of that file that `schema` lacks is null in all rows."""
    if not schema.names:
        raise UnsupportedFormat("no columns", path, expected="one or more")
    if len(set(schema.names)) < len(schema):
        what = f"columns that share a name, of {', '.join(schema.names)}"
        raise UnsupportedFormat(what, path, expected="each once")
    return FittingWriter(style.open(schema, path), schema, path)


class FittingWriter:
    """Passes columns to a writer in the writer's order and types."""

    def __init__(self, writer: Writer, schema: pa.Schema, path: str) -> None:
        self._writer, self._schema, self._path = writer, schema, path

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Columns may have other types of the same kind; UnsupportedFormat for a value that the schema's
        type does not hold exactly."""
        if sorted(batch.schema.names) != sorted(self._schema.names):
            expected, found = ", ".join(self._schema.names), ", ".join(batch.schema.names)
            raise UnsupportedFormat(f"columns {found}", self._path, expected=expected)
        arrays = [_fitted(batch.column(field.name), field, self._path) for field in self._schema]
        if batch.num_rows:
            self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def finish(self) -> bytes:
        return self._writer.finish()


def _fitted(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    try:
        return fit(array, field.type)
    except Unfit as error:
        raise UnsupportedFormat(str(error), path, column=field.name) from None


@dataclass(frozen=True)
class DeclaredStyle:
    """A style whose columns have the names of the table that declares them. They match without regard to case, or by
    position where the file has no names (`_col0`)."""

    style: Style

    @property
    def ending(self) -> str:
        return self.style.ending

    @property
    def columns(self) -> Sequence[str]:
        return self.style.columns

    def open(self, schema: pa.Schema, path: str) -> Writer:
        known = {name.lower(): name for name in self.columns}
        if self.columns and all(UNNAMED.fullmatch(name) for name in self.columns):
            names = {name: f"_col{place}" for place, name in enumerate(schema.names)}
        else:
            names = {name: known.get(name.lower(), name) for name in schema.names}
        renamed = pa.schema([field.with_name(names[field.name]) for field in schema])
        return RenamingWriter(self.style.open(renamed, path), names)


class RenamingWriter:
    """Renames columns to their names in the file."""

    def __init__(self, writer: Writer, names: Mapping[str, str]) -> None:
        self._writer, self._names = writer, names

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, batch: pa.RecordBatch) -> None:
        fields = [field.with_name(self._names[field.name]) for field in batch.schema]
        self._writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)))

    def finish(self) -> bytes:
        return self._writer.finish()


def check_written(
    data: bytes, format: str, options: Options | None, path: str, batches: Iterable[pa.RecordBatch]
) -> None:
    """Read a written file back with the source's options, and compare all its rows with the written ones. NotReadBack
    names the first column and row (from 0) that differ."""
    reader, table = MemoryFile(data, path), _table(batches)
    try:
        source = open_source(reader, format, options)
        known = set(source.schema.names)
        missing = [name for name in table.column_names if name not in known]
        if missing:
            raise NotReadBack("not read back", path, column=missing[0], expected=", ".join(table.column_names))
        rows = 0
        for batch in source.scan(reader, table.column_names):
            expected = table.slice(rows, batch.num_rows)
            if expected.num_rows == batch.num_rows:  # the pointer columns come after the data columns
                for name, written, found in zip(table.column_names, expected.columns, batch.columns, strict=False):
                    _compare(name, written, found, rows, path)
            rows += batch.num_rows
    except NotReadBack:
        raise
    except SourceError as error:
        raise NotReadBack(f"the written file cannot be read: {error}", path) from error
    if rows != table.num_rows:
        raise NotReadBack(f"the file gives {rows} rows back", path, expected=table.num_rows)


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    filled = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(filled) if filled else pa.table({})


def _compare(name: str, written: pa.ChunkedArray, found: pa.Array, first: int, path: str) -> None:
    """Compare rows of one column. `first` is the number of the first of these rows in the file."""
    chunks = written.chunks
    expected = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    try:
        expected = fit(expected, found.type)
    except Unfit as error:
        raise NotReadBack(f"the rows from {first} on have another type: {error}", path, column=name) from None
    row = first_difference(expected, found)
    if row is not None:
        wanted, got = _shown(expected, row), _shown(found, row)
        raise NotReadBack(f"row {first + row}", path, column=name, expected=wanted, found=got)


def _shown(array: pa.Array, row: int) -> str:
    return f"{array.slice(row, 1).to_string(skip_new_lines=True)[:80]}"
