"""The formats by name, and new files like the existing ones of a source.

A new format is an entry in `FORMATS`. `detect` looks for the magic at the start of a file; for Parquet also at the end.
So a format whose magic is only at the end needs a change of `detect`.

`style_of` copies schema, codec and dialect from one file, `open_writer` writes a file, `check_written` reads it back
and compares every row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gnomon.base.errors import Action, GnomonError, check_memory
from gnomon.base.later import Later, late
from gnomon.base.readers import MemoryFile, RangeReader
from gnomon.sources.contract import MappedFile, Maps, Options, SourceFile, Style, Writer
from gnomon.sources.declared_schema import (
    DECLARED,
    UNNAMED,
    DeclaredFile,
    DeclaredMappedFile,
    DeclaredUnmappedFile,
    declared_columns,
)
from gnomon.sources.errors import DamagedSource, NotReadBack, OptionError, SourceError, UnsupportedFormat
from gnomon.sources.nested import NestedFile, without_nested
from gnomon.sources.parquet import ENCRYPTED_MAGIC, MAGIC, ParquetStyle, have_values, open_parquet, parquet_style
from gnomon.sources.parquet import check_maps as check_parquet_maps
from gnomon.sources.types import Unfit, first_difference, fit, has_field_ids

if TYPE_CHECKING:
    from gnomon.sources import avro, literals, orc, sequence, text
else:  # most processes read files of one format
    avro, literals, orc = Later("gnomon.sources.avro"), Later("gnomon.sources.literals"), Later("gnomon.sources.orc")
    sequence, text = Later("gnomon.sources.sequence"), Later("gnomon.sources.text")


@dataclass(frozen=True)
class Format:
    """One format: how its files are recognized, opened and written.

    - `open`: opens a file of the format, with the format's options.
    - `magic`: the first bytes of each file; empty for text. It stands here, so that `detect` imports no format.
    - `endings`: the ends of file names, for text formats, which have no magic.
    - `options`: returns each option of the format, with a description.
    - `infer`: the columns of a file, from its rows, for formats whose files do not declare them; `merge`: the columns
      of several files together. The option `schema` holds the result.
    - `page_maps`: opens a file with its recorded page maps, if any, for formats with pages.
    - `by_ordinal`: the offset of a pointer counts rows of the file, not bytes.
    - `of_table`: the options to read a file without column names with the columns that a table declares.
    - `added`: columns of the files that no table declares.
    - `style`: how new files are written: like the given file of the source, or in the format's default way for None."""

    open: Callable[[RangeReader, Options], SourceFile]
    magic: bytes = b""
    endings: tuple[str, ...] = ()
    options: Callable[[], Mapping[str, str]] | None = None
    infer: Callable[[RangeReader, Options], pa.Schema] | None = None
    merge: Callable[[Sequence[pa.Schema]], pa.Schema] | None = None
    page_maps: Callable[[RangeReader, Options, Maps | None], MappedFile] | None = None
    by_ordinal: bool = False
    of_table: Callable[[pa.Schema], Options] | None = None
    added: tuple[str, ...] = ()
    style: Callable[[RangeReader | None, Options], Style] | None = None


PACKED = ("", ".gz", ".bz2", ".zst")  # opening a compressed text file decides whether to refuse it
FORMATS: dict[str, Format] = {
    "parquet": Format(
        open_parquet,
        MAGIC,
        page_maps=open_parquet,
        by_ordinal=True,
        style=parquet_style,
    ),
    "avro": Format(
        late(lambda: avro.open_avro),
        b"Obj\x01",
        style=late(lambda: avro.avro_style),
    ),
    "orc": Format(
        late(lambda: orc.open_orc),
        b"ORC",
        options=lambda: orc.OPTIONS,
        by_ordinal=True,
        style=late(lambda: orc.orc_style),
    ),
    "sequence": Format(
        late(lambda: sequence.open_sequence),
        b"SEQ",
        options=lambda: sequence.OPTIONS,
        of_table=late(lambda: sequence.unnamed_values),
        added=("key",),
    ),
    "csv": Format(
        late(lambda: text.open_csv),
        endings=tuple(f"{ending}{packed}" for ending in (".csv", ".tsv") for packed in PACKED),
        options=lambda: text.CSV_OPTIONS,
        infer=late(lambda: text.infer_csv),
        merge=late(lambda: text.merge_csv),
        style=late(lambda: text.csv_style),
    ),
    "jsonl": Format(
        late(lambda: text.open_jsonl),
        endings=tuple(f"{ending}{packed}" for ending in (".json", ".jsonl", ".ndjson") for packed in PACKED),
        options=lambda: text.JSON_OPTIONS,
        infer=late(lambda: text.infer_jsonl),
        merge=late(lambda: literals.merge_schemas),
        style=late(lambda: text.jsonl_style),
    ),
}
# The formats that a table with field ids (Iceberg) may have beside Parquet: how a file is opened.
TABLE_FORMATS: dict[str, Callable[[RangeReader], SourceFile]] = {
    "avro": late(lambda: avro.open_iceberg_avro),
    "orc": lambda reader: orc.open_orc(reader, {orc.TIMESTAMP_UNIT: "us"}),
}
TEXT_ENDINGS = [ending for format in FORMATS.values() for ending in format.endings if ending.count(".") == 1]


def open_source(reader: RangeReader, format: str, options: Options | None = None) -> SourceFile:
    """Open a file and read its metadata. `format` is a name in `FORMATS`; `detect` gives it."""
    found = FORMATS.get(format)
    if found is None:
        raise UnsupportedFormat(f"no format {format!r}; supported: {', '.join(FORMATS)}", reader.name)
    options, paths = without_nested(options)
    if paths:
        return NestedFile(open_source(reader, format, options), paths, reader.name)
    if found.page_maps is not None:
        return open_mapped(reader, format, options)
    of_format, ddl = _split(options)
    if ddl is None:
        return found.open(reader, of_format)
    columns = declared_columns(ddl)
    if found.of_table is not None:
        of_format = {**of_format, **found.of_table(columns)}
    return DeclaredFile(found.open(reader, of_format), columns, reader.name, found.added)


def _split(options: Options | None) -> tuple[Options, str | None]:
    """Separate the options of the format from the columns that a table declares, as DDL."""
    of_format = dict(options or {})
    ddl = of_format.pop(DECLARED, None)
    return of_format, ddl


def open_mapped(
    reader: RangeReader, format: str, options: Options | None = None, maps: Maps | None = None
) -> MappedFile:
    """Open a file of a format with page maps. `maps` returns the recorded ones; it is called after the metadata was
    read. DamagedMaps unless they equal the result of `export_maps` for this file."""
    options, paths = without_nested(options)
    if paths:
        return NestedFile(open_mapped(reader, format, options, maps), paths, reader.name)
    of_format, ddl = _split(options)
    if ddl is None:
        return _opener(format)(reader, of_format, maps)
    columns = declared_columns(ddl)
    try:
        file = _opener(format)(reader, of_format, maps)
    except SourceError:
        other = detect_table_format(reader) if has_field_ids(columns) else format
        if other == format:
            raise
        return DeclaredUnmappedFile(TABLE_FORMATS[other](reader), other, columns, reader.name)
    return DeclaredMappedFile(file, columns, reader.name)


def detect_table_format(reader: RangeReader) -> str:
    """The format of a data file of a lake table, by its first bytes; Parquet if they belong to no other format."""
    head = reader.read_range(0, min(reader.size, max(len(FORMATS[name].magic) for name in TABLE_FORMATS)))
    return next((name for name in TABLE_FORMATS if head.startswith(FORMATS[name].magic)), "parquet")


def check_maps(format: str, maps: bytes, digest: str) -> None:
    """DamagedMaps unless recorded page maps are whole and belong to the file with this digest."""
    _opener(format)
    check_parquet_maps(maps, digest)


def maps_have_values(format: str, maps: bytes) -> bool:
    """Whether value maps were made for recorded page maps, which `check_maps` has checked."""
    _opener(format)
    return have_values(maps)


def _opener(format: str) -> Callable[[RangeReader, Options, Maps | None], MappedFile]:
    """The function that opens a file with page maps. UnsupportedFormat for a format that has none."""
    found = FORMATS[format].page_maps
    if found is None:
        raise UnsupportedFormat(f"format {format} has no page maps", "recorded page maps")
    return found


def check_options(format: str, options: Options) -> None:
    """Refuse (OptionError) options that a format does not know."""
    known_by = FORMATS[format].options
    known = known_by() if known_by is not None else {}
    for name in options:
        if name not in known:
            known_text = f"it has {', '.join(known)}" if known else "it has none"
            raise OptionError(f"option {name}: format {format} has no such option; {known_text}")


def detect(reader: RangeReader) -> str:
    """The name of a file's format, from its first and last bytes, else from its name.

    DamagedSource for a truncated Parquet file. UnsupportedFormat for an encrypted Parquet file, and where neither bytes
    nor name belong to a format."""
    path, size = reader.name, reader.size
    head = reader.read_range(0, min(size, max(len(format.magic) for format in FORMATS.values())))
    end_length = min(size, len(MAGIC))
    end = reader.read_range(size - end_length, end_length)
    if end == ENCRYPTED_MAGIC and size >= 2 * len(MAGIC):
        raise UnsupportedFormat("a Parquet file whose footer is encrypted, and no keys are known", path)
    if head.startswith(MAGIC) and (end != MAGIC or size < 2 * len(MAGIC)):
        raise DamagedSource(
            "starts like a Parquet file, but does not end like one: it is truncated", path, size, action=Action.RESTORE
        )
    for name, format in FORMATS.items():
        if format.magic and head.startswith(format.magic):
            return name
    named = format_of_name(path)
    if named:
        return named
    what = "the bytes match no supported format" if size else "an empty file, without a detectable format"
    raise UnsupportedFormat(
        f"{what}; supported: {', '.join(FORMATS)}; text formats are detected by file name ({', '.join(TEXT_ENDINGS)})",
        path,
        action=Action.NAME_FORMAT,
    )


def format_of_name(path: str) -> str:
    """The text format of a file's name, by its ending; "" if none."""
    ending = path.lower().endswith
    return next((name for name, format in FORMATS.items() if format.endings and ending(format.endings)), "")


def style_of(reader: RangeReader | None, format: str, options: Options | None = None) -> Style:
    """How new files of a source are written: like the file of `reader`, usually the newest one; for None in the
    format's default way. UnsupportedFormat for a format without a writer, or a file that the writer cannot imitate."""
    found = FORMATS.get(format)
    if found is None or found.style is None:
        written = ", ".join(name for name, one in FORMATS.items() if one.style is not None)
        path = "a new file" if reader is None else reader.name
        raise UnsupportedFormat(f"Gnomon writes no files of format {format}", path, expected=f"one of {written}")
    of_format, _ = _split(without_nested(options)[0])
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
    """Passes columns to a writer in the writer's order and types, under their names in the file."""

    def __init__(self, writer: Writer, schema: pa.Schema, path: str, names: Mapping[str, str] | None = None) -> None:
        """`names`: the name in the file of each column of `schema`, where they differ."""
        self._writer, self._schema, self._path = writer, schema, path
        self._in_file = schema
        if names:
            self._in_file = pa.schema([field.with_name(names[field.name]) for field in schema])

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
            self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=self._in_file))

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
        return FittingWriter(self.style.open(renamed, path), schema, path, names)


def check_written(
    data: bytes, format: str, options: Options | None, path: str, batches: Iterable[pa.RecordBatch]
) -> None:
    """Read a written file back with the source's options, and compare all its rows with the written ones. NotReadBack
    names the first column and row (from 0) that differ."""
    reader, written = MemoryFile(data, path), _Written(batches)
    try:
        source = open_source(reader, format, options)
        known = set(source.schema.names)
        missing = [name for name in written.names if name not in known]
        if missing:
            raise NotReadBack("not read back", path, column=missing[0], expected=", ".join(written.names))
        rows = 0
        for batch in source.scan(reader, written.names):
            expected = written.take(batch.num_rows)
            if expected.num_rows == batch.num_rows:  # the pointer columns come after the data columns
                for name, column, found in zip(written.names, expected.columns, batch.columns, strict=False):
                    _compare(name, column, found, rows, path)
            rows += batch.num_rows
    except NotReadBack:
        raise
    except SourceError as error:
        raise NotReadBack(f"the written file cannot be read: {error}", path) from error
    if rows != (total := written.count()):
        raise NotReadBack(f"the file gives {rows} rows back", path, expected=total)


class _Written:
    """The written rows, taken in order. A batch is asked for when its rows are due."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
        self._held = next(self._batches, pa.table({}))
        self._seen, self.names = self._held.num_rows, self._held.column_names

    def take(self, rows: int) -> pa.Table:
        """The next rows, fewer at the end."""
        while self._held.num_rows < rows and (more := next(self._batches, None)) is not None:
            self._held = pa.concat_tables([self._held, more])
            self._seen += more.num_rows
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return taken

    def count(self) -> int:
        """All rows, taken or not."""
        return int(self._seen + sum(more.num_rows for more in self._batches))


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
