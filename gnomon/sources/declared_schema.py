"""A data file as part of a table that declares its columns (Hive's, Spark's): the file's columns with the names and
types of the table.

Names match without regard to case. Columns of a lake table match by field id, or by the names on record
(`types.ddl`). In a file without names (`_col0`, `_col1`: old Hive's ORC) columns match by position. A value is
cast to the declared type where that type holds it exactly, and refused otherwise. Columns that the table does not
declare are left out. If a file lacks a column that has a default, all its rows have the default.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from re import compile as pattern

import pyarrow as pa
from pyarrow import types

from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import (
    FileBehind,
    KeptPages,
    MappedFile,
    NarrowFile,
    PlainValues,
    Pointers,
    SourceFile,
    Split,
)
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.types import (
    WIDENED,
    Unfit,
    can_hold,
    conform,
    default_array,
    default_of,
    field_id,
    lacks_names,
    matching,
    narrowed,
    parse_ddl,
    record_of,
)

DECLARED = "declared"  # the option that holds the table's columns, as DDL
FILE_COLUMN = b"gnomon.column"  # key in a field's metadata: the name in the file, where it differs
UNNAMED = pattern(r"_col\d+")
CACHED = 64  # number of tables


@lru_cache(CACHED)
def declared_columns(ddl: str) -> pa.Schema:
    """The columns that a table declares, from their DDL."""
    return parse_ddl(ddl)


class DeclaredFile(FileBehind):
    """A file with the columns of a table. `_file_fields` maps each declared column that the file has to its field
    there."""

    def __init__(self, file: SourceFile, columns: pa.Schema, path: str, hidden: Sequence[str] = ()) -> None:
        """`hidden` are columns that the format adds and no table declares."""
        super().__init__(file)
        self._columns = columns
        self._path = path
        own = [field for field in file.schema if field.name not in hidden]
        self._file_fields = _by_place(own, columns, path) or _by_name(own, columns, path)
        self._defaults = {
            field.name for field in columns if field.name not in self._file_fields and default_of(field) is not None
        }
        fields = [
            _table_field(field, self._file_fields.get(field.name))
            for field in columns
            if field.name in self._file_fields or field.name in self._defaults
        ]
        # the table's columns that the file has, or that have a default, in the table's order and types
        self.schema = pa.schema(fields, file.schema.metadata)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        self._check(columns)
        own = self._own(columns)
        for batch in self._file.scan(reader, own, split):
            arrays = self._arrays(columns, batch.columns[: len(own)], batch.num_rows)
            names = [*columns, *(field.name for field in POINTER_FIELDS)]
            yield pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(own) :]], names=names)

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        self._check(columns)
        table = self._file.fetch(reader, pointers, self._own(columns))
        arrays = self._arrays(columns, [column.combine_chunks() for column in table.columns], table.num_rows)
        return pa.Table.from_arrays(arrays, names=list(columns)) if arrays else table

    def narrow(self, path: Sequence[str]) -> str:
        file, name = self._file, ".".join(path)
        own = self._own_path(path)
        if own is None or not isinstance(file, NarrowFile):
            return path[0]
        narrow = file.narrow(own)
        if narrow == own[0]:
            return path[0]
        while name in self._columns.names:
            name += "_"
        self._columns = self._columns.append(narrowed(self._columns.field(path[0]), path[1:]).with_name(name))
        self._file_fields[name] = narrowed(self._file_fields[path[0]], own[1:]).with_name(narrow)
        return name

    def _own_path(self, path: Sequence[str]) -> Sequence[str] | None:
        """The path in the file of a field of the table; None where the file lacks a part of it."""
        found = self._file_fields.get(path[0])
        if found is None:
            return None
        wanted, own = self._columns.field(path[0]), [found.name]
        for name in path[1:]:
            wanted = wanted.type.field(name)
            if not types.is_struct(found.type):
                return None
            [(_, places)] = matching(list(found.type), [wanted])
            if len(places) != 1:
                return None
            above, found = found, found.type.field(places[0])
            if above.type.get_field_index(found.name) < 0:  # two fields have the name
                return None
            own.append(found.name)
        return own

    def _arrays(self, columns: Sequence[str], own: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """The values of the columns; `own` has the values of the columns that the file has."""
        found = iter(own)
        return [
            default_array(self._columns.field(name), rows)
            if name in self._defaults
            else self._conform(name, next(found))
            for name in columns
        ]

    def _own(self, columns: Sequence[str]) -> list[str]:
        """The names of these columns in the file, without the ones that it lacks."""
        return [self._file_fields[name].name for name in columns if name in self._file_fields]

    def _check(self, columns: Sequence[str]) -> None:
        """UnsupportedFormat for a column whose type in the file cannot be cast to the declared one."""
        for name in (name for name in columns if name not in self._defaults):
            found, wanted = self._file_fields[name].type, self._columns.field(name).type
            if not can_hold(found, wanted, WIDENED):
                raise UnsupportedFormat(
                    f"the file has {found}, the table declares {wanted}, which cannot hold its values exactly",
                    self._path,
                    column=name,
                    action=Action.DECLARE_TYPE,
                )

    def _conform(self, name: str, array: pa.Array) -> pa.Array:
        try:
            return conform(array, self._columns.field(name).type)
        except Unfit as error:
            found = self._file_fields[name].type
            raise UnsupportedFormat(
                f"a value of type {found} in the file does not fit the declared type ({error})",
                self._path,
                column=name,
            ) from None


class DeclaredMappedFile(DeclaredFile):
    """A `DeclaredFile` of a format with page maps. Page maps cover the whole file, whatever the table declares."""

    def __init__(self, file: MappedFile, columns: pa.Schema, path: str) -> None:
        super().__init__(file, columns, path)
        self._mapped = file

    def export_maps(self, reader: RangeReader, deep: bool = False) -> bytes:
        return self._mapped.export_maps(reader, deep)

    def keep_in(self, pages: KeptPages) -> None:
        self._mapped.keep_in(pages)

    def values(self, reader: RangeReader, rows: Sequence[int], columns: Sequence[str]) -> PlainValues | None:
        """None also for a column that the file lacks, or has in another type than the declared one."""
        fields = [self._file_fields.get(name) for name in columns]
        declared = self._columns
        if any(f is None or f.type != declared.field(n).type for f, n in zip(fields, columns, strict=True)):
            return None
        return self._mapped.values(reader, rows, self._own(columns))

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        self._check(columns)
        self._mapped.map_pages(reader, pointers, self._own(columns))

    @property
    def learned(self) -> int:
        return self._mapped.learned

    def export_learned(self) -> bytes:
        return self._mapped.export_learned()

    def learn(self, data: bytes) -> None:
        self._mapped.learn(data)

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        return self._mapped.has_maps(reader, maps)


class DeclaredUnmappedFile(DeclaredFile):
    """A `DeclaredFile` of a format without page maps, in a table whose other files have them."""

    def __init__(self, file: SourceFile, format: str, columns: pa.Schema, path: str) -> None:
        if not any(field_id(field) is not None for field in file.schema):  # by a writer whose types mean others
            raise UnsupportedFormat(f"the {format} file has no field ids, by which a table's columns are found", path)
        super().__init__(file, columns, path)

    def export_maps(self, reader: RangeReader, deep: bool = False) -> bytes:
        raise UnsupportedFormat("page maps are recorded for Parquet files alone; build without page maps", self._path)

    def keep_in(self, pages: KeptPages) -> None:
        """The file has no pages to cache."""

    def values(self, reader: RangeReader, rows: Sequence[int], columns: Sequence[str]) -> PlainValues | None:
        return None

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        """The file has no pages to map."""

    @property
    def learned(self) -> int:
        return 0

    def export_learned(self) -> bytes:
        return b""

    def learn(self, data: bytes) -> None:
        """The file has no pages to map."""

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        return False


def _by_place(own: Sequence[pa.Field], columns: pa.Schema, path: str) -> dict[str, pa.Field]:
    """The declared columns in the order of the file's columns, for a file without names; empty for other files."""
    if not own or not all(UNNAMED.fullmatch(field.name) for field in own):
        return {}
    if len(own) > len(columns):
        raise UnsupportedFormat(
            f"the file has {len(own)} columns without names, the table declares {len(columns)}", path
        )
    return dict(zip(columns.names, own, strict=False))


def _by_name(own: Sequence[pa.Field], columns: pa.Schema, path: str) -> dict[str, pa.Field]:
    """The declared columns that the file has."""
    if lacks_names(own, columns):
        raise UnsupportedFormat(
            "the file has no field ids, and the table has no names for its columns (schema.name-mapping.default)", path
        )
    found: dict[str, pa.Field] = {}
    for column, places in matching(own, columns):
        if len(places) > 1:
            raise UnsupportedFormat(
                f"the columns {', '.join(own[place].name for place in places)} "
                f"{'differ in case only' if record_of(column) is None else 'have the same record'}, so "
                f"the table's {column.name} is ambiguous",
                path,
                action=Action.WRITE_SOURCE,
            )
        if places:
            found[column.name] = own[places[0]]
    return found


def _table_field(declared: pa.Field, field: pa.Field | None) -> pa.Field:
    """A declared column, with its name in the file as metadata where it differs; an empty name where the file lacks
    it."""
    if field is None:
        return pa.field(declared.name, declared.type, metadata={FILE_COLUMN: b""})
    known = dict(field.metadata or {})
    known |= {FILE_COLUMN: field.name.encode()} if field.name != declared.name else {}
    return pa.field(declared.name, declared.type, metadata=known)
