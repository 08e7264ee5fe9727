"""Fields of structs as columns of their own, each named by its path: `payload.order.id`.

A name means a path only where no column has the whole name. `find_path` decides that once, when an index is made; from
then on the path is used, so that a file of another shape is an error and never another column. A path leads through
structs alone. Where a struct on it is null, its field is null; a file that lacks a part of the path has nulls.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyarrow import types

from gnomon.base.arrow import compute as pc
from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.contract import (
    FileBehind,
    KeptPages,
    NarrowFile,
    Options,
    PlainValues,
    Pointers,
    SourceFile,
    Split,
)
from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.pointers import POINTER_FIELDS
from gnomon.sources.types import record_of

NESTED = "nested"  # the option with the paths of the fields that a file has as columns, as JSON

Path = tuple[str, ...]  # the names from a column down to a field of a struct
Fields = Iterable[pa.Field]  # of a schema, or of the type of a struct


class WrongPath(ValueError):
    """A path leads through something other than structs, or a name has several meanings."""


def path_name(path: Sequence[str]) -> str:
    """The name of a field by its path."""
    return ".".join(path)


def nested_option(paths: Iterable[Path]) -> dict[str, str]:
    """The option to open files with these fields as columns; empty for none."""
    found = [path for path in paths if path]
    return {NESTED: json.dumps(found)} if found else {}


def without_nested(options: Options | None) -> tuple[dict[str, str], list[Path]]:
    """The options without the one of `nested_option`, and its paths."""
    others = dict(options or {})
    return others, [tuple(path) for path in json.loads(others.pop(NESTED, "[]"))]


def find_path(schema: Fields, name: str) -> Path | None:
    """The path of the field with this name. None where a column has the name, or no field. WrongPath where the name
    leads through a list or a map, or has several meanings, since names may hold dots."""
    columns = list(schema)
    if any(field.name == name for field in columns):
        return None
    ends = list(_ends(columns, name, ()))
    paths = [path for path, other in ends if other is None]
    if len(paths) > 1:
        shown = " and ".join(map(repr, paths))
        raise WrongPath(f"column {name} may be {shown}, since names of fields hold dots; rename a field")
    for path, other in ends:
        if other is not None and not paths:
            raise WrongPath(
                f"column {name} leads through {path_name(path)}, which is {other} and no struct, so that a row may "
                "have other than one value; name a field that is within structs alone"
            )
    return paths[0] if paths else None


def _ends(fields: Fields, name: str, above: Path) -> Iterator[tuple[Path, pa.DataType | None]]:
    """The path of each field with this name, and of each list, map or union on the way, with its type."""
    for field in fields:
        path = (*above, field.name)
        if field.name == name:
            yield path, None
        elif name.startswith(f"{field.name}."):
            if types.is_struct(field.type):
                yield from _ends(field.type, name[len(field.name) + 1 :], path)
            elif types.is_nested(field.type):
                yield path, field.type


def field_at(schema: Fields, path: Sequence[str]) -> pa.Field | None:
    """The field of a path, with its name there and as nullable. None where a part is absent; of type null where a part
    has no type. WrongPath where a part is no struct, or where two fields have its name."""
    fields, kind = schema, None
    for depth, name in enumerate(path):
        if kind is not None:
            if types.is_null(kind):
                break
            if not types.is_struct(kind):
                raise WrongPath(f"column {path_name(path[:depth])} is {kind} here, no struct with a field {name}")
            fields = kind
        found = [field for field in fields if field.name == name]
        if not found:
            return None
        if len(found) > 1:
            raise WrongPath(f"{len(found)} fields have the name {path_name(path[: depth + 1])}")
        kind = found[0].type
    return pa.field(path_name(path), kind)


def origin_at(table: Fields, path: Sequence[str]) -> tuple[object, ...] | None:
    """The origin of a path in the files of a table: the field ids, or the names in files, of each part from the column
    down. Another field that took the name has another origin. None where the table has no such field."""
    found = next((field for field in table if field.name == path[0]), None)
    if found is None:
        return None
    record = record_of(found)
    if record is not None and record.id is not None:
        own: object = record.id
    else:
        own = (record.names[0] if record is not None and record.names else str(found.name)).lower()
    if len(path) == 1:
        return (own,)
    below = origin_at(found.type, path[1:]) if types.is_struct(found.type) else None
    return None if below is None else (own, *below)


def array_at(array: pa.Array | pa.ChunkedArray, path: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """The values of a field below a column, null where a struct above is null. `path` begins below the column."""
    kind, places = array.type, []
    for name in path:
        if types.is_null(kind):
            return pa.nulls(len(array))
        places.append(kind.get_field_index(name))
        kind = kind.field(places[-1]).type
    return pc.struct_field(array, places) if places else array


def changed_at(field: pa.Field, path: Sequence[str], change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    """A column with the field of a path changed; `path` begins below it. The column itself where it has none."""
    if not path:
        return change(field)
    if not types.is_struct(field.type):
        return field
    below = [changed_at(one, path[1:], change) if one.name == path[0] else one for one in field.type]
    return field.with_type(pa.struct(below))


def spelled_otherwise(schema: Fields, path: Sequence[str]) -> str | None:
    """The name of a column, or of a field on a path, that differs from a part of the path in case only."""
    fields = schema
    for depth, name in enumerate(path):
        found = list(fields)
        for field in found:
            if field.name != name and field.name.lower() == name.lower():
                return path_name((*path[:depth], field.name))
        kind = next((field.type for field in found if field.name == name), None)
        if kind is None or not types.is_struct(kind):
            return None
        fields = kind
    return None


class NestedFile(FileBehind):
    """A file with fields of structs as columns, after its own. Where the format can, a field is read alone. Page
    maps cover the whole file."""

    def __init__(self, file: SourceFile, paths: Sequence[Path], where: str) -> None:
        """UnsupportedFormat, with the path `where`, for a file in which a path is wrong, or a column has its name."""
        super().__init__(file)
        self._paths: dict[str, Path] = {}
        self._narrow: dict[str, str] = {}  # the column to read alone for each field
        fields = []
        for path in paths:
            name = path_name(path)
            try:
                field = field_at(file.schema, path)
            except WrongPath as error:
                raise UnsupportedFormat(str(error), where, column=name, action=Action.BUILD_ELSEWHERE) from None
            if name in file.schema.names:
                what = "the file has a column of this name; the index has the field of a struct under it"
                raise UnsupportedFormat(what, where, column=name, action=Action.BUILD_ELSEWHERE)
            if field is not None:
                fields.append(field)
                self._paths[name] = path
                self._narrow[name] = file.narrow(path) if isinstance(file, NarrowFile) else path[0]
        self.schema = pa.schema([*file.schema, *fields], file.schema.metadata)

    def scan(self, reader: RangeReader, columns: Sequence[str], split: Split | None = None) -> Iterator[pa.RecordBatch]:
        own = self._own(columns)
        names = [*columns, *(field.name for field in POINTER_FIELDS)]
        for batch in self._file.scan(reader, own, split):
            arrays = [*self._arrays(columns, own, batch.columns), *batch.columns[len(own) :]]
            yield pa.RecordBatch.from_arrays(arrays, names=names) if self._has_any(columns) else batch

    def fetch(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> pa.Table:
        own = self._own(columns)
        table = self._file.fetch(reader, pointers, own)
        if not self._has_any(columns):
            return table
        return pa.Table.from_arrays(self._arrays(columns, own, table.columns), names=list(columns))

    def _has_any(self, columns: Sequence[str]) -> bool:
        return not self._paths.keys().isdisjoint(columns)

    def _own(self, columns: Sequence[str]) -> list[str]:
        """The columns to read for these: a field comes from its whole column where that is read anyway."""
        if not self._has_any(columns):
            return list(columns)
        return list(dict.fromkeys(self._read_for(name, columns) for name in columns))

    def _read_for(self, name: str, columns: Sequence[str]) -> str:
        path = self._paths.get(name)
        return name if path is None else path[0] if path[0] in columns else self._narrow[name]

    def _arrays(self, columns: Sequence[str], own: Sequence[str], arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns, from the arrays of `own`, which come first."""
        read = dict(zip(own, arrays, strict=False))
        return [array_at(read[self._read_for(name, columns)], self._paths.get(name, ())[1:]) for name in columns]

    # -- of a format with page maps ------------------------------------------------------------------------------------

    def export_maps(self, reader: RangeReader, deep: bool = False) -> bytes:
        return self._file.export_maps(reader, deep)

    def keep_in(self, pages: KeptPages) -> None:
        self._file.keep_in(pages)

    def values(self, reader: RangeReader, rows: Sequence[int], columns: Sequence[str]) -> PlainValues | None:
        return None if self._has_any(columns) else self._file.values(reader, rows, columns)

    def map_pages(self, reader: RangeReader, pointers: Pointers, columns: Sequence[str]) -> None:
        self._file.map_pages(reader, pointers, self._own(columns))

    @property
    def learned(self) -> int:
        return self._file.learned

    def export_learned(self) -> bytes:
        return self._file.export_learned()

    def learn(self, data: bytes) -> None:
        self._file.learn(data)

    def has_maps(self, reader: RangeReader, maps: bytes) -> bool:
        return self._file.has_maps(reader, maps)


def with_fields(file: SourceFile, names: Sequence[str], where: str) -> SourceFile:
    """The file with the fields of structs that these names mean; without those that it lacks, or that are wrong."""
    paths = []
    for name in names:
        with suppress(WrongPath):
            path = find_path(file.schema, name)
            paths += [path] if path is not None else []
    return NestedFile(file, paths, where) if paths else file
