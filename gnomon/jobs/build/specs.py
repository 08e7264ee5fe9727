"""The request of a build, and the spec of the index that it makes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.key_types import is_key_type, mean_the_same, source_type
from gnomon.btree.keys import type_of_arrow
from gnomon.jobs.build.engine import Engine
from gnomon.jobs.files import Described, is_inferred, listed, merged_columns
from gnomon.shadow.errors import SpecMismatch, UnknownColumn, UsageError
from gnomon.shadow.metadata import (
    DEEP,
    RANGE,
    IndexSpec,
    KeyColumn,
    PageMapsSetting,
    SourceRoot,
    buckets_for,
    check_buckets,
    check_columns,
    check_names,
    check_order,
    check_same,
    is_better_flat,
    no_column,
    ordered,
    source_named,
)
from gnomon.shadow.storage import FileInfo
from gnomon.shadow.tables import TEXT
from gnomon.sources import Options, open_source
from gnomon.sources.declared_schema import FILE_COLUMN, UNNAMED
from gnomon.sources.nested import Path, WrongPath, field_at, find_path, spelled_otherwise
from gnomon.sources.text import RAGGED, flag
from gnomon.sources.types import parse_ddl

UNKNOWN_TYPE = "unknown"
MOST_RAGGED = 0.1  # share of the records of a CSV file
RESERVED = ("_metadata", "__gnomon")
Columns = Sequence[tuple[str, pa.Schema]]  # of files, or of a table


class Vanished(Enum):
    """The treatment of covered files that are gone from the source."""

    DROP_SOME = "drop some"  # drop them, but refuse to drop a large part of the source
    DROP_ALL = "drop all"  # drop them, however many
    KEEP = "keep"  # leave their entries live
    REFUSE = "refuse"  # refuse the build


@dataclass(frozen=True)
class BuildRequest:
    """The arguments of a build. `buckets` None: the index's number, or the default for the rows. The number of ranges
    of keys is the index's own after the first build, since it grows. `order` None: the index's order of buckets, or
    hash. `flat` None: the index's layout, or the default for the partitions. `options` None: the index's options of the
    format, or none. `page_maps` False: the index's setting; DEEP: with value maps. `partitions` None: all; else the
    partitions with these values. `vanished` is the treatment of files that are gone from the source. `as_files` indexes
    every file of a lake table. `adopt` takes over the files of a copy with the indexed content. `full` indexes every
    file again, and reads nothing of the index that may be damaged. `batch` is the id of the batch whose append added
    the files. `table_version` is the version of a lake table to index, None for the newest."""

    keys: Sequence[str]
    include: Sequence[str] = ()
    buckets: int | None = None
    _: KW_ONLY
    format: str = "auto"
    flat: bool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    page_maps: PageMapsSetting = False
    partitions: Sequence[Mapping[str, object]] | None = None
    vanished: Vanished = Vanished.DROP_SOME
    as_files: bool = False
    adopt: bool = False
    full: bool = False
    batch: str | None = None
    table_version: str | None = None
    order: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [*self.keys, *self.include]

    def __post_init__(self) -> None:
        check_names("keys", self.keys)
        check_names("include", self.include)
        if not [*self.keys]:  # an index of pandas has no truth value
            raise UsageError("an index needs at least one key column")
        if self.page_maps not in (False, True, DEEP):
            raise UsageError("page_maps", expected=f"False, True or {DEEP!r}", found=repr(self.page_maps))
        if self.buckets is not None:
            check_buckets(self.buckets)
        check_order(self.order)


def new_spec(
    request: BuildRequest,
    root: SourceRoot,
    format_name: str,
    partitions: Sequence[str],
    described: Sequence[Described],
) -> IndexSpec:
    """The spec of a first build: types from the source's files, or from the declaration of a catalog table; buckets
    from the rows."""
    rows: dict[str, int] = {}
    for one in described:
        rows[one.entry.partition] = rows.get(one.entry.partition, 0) + one.likely_rows
    reserved = [name for name in (*request.keys, *request.include) if name.startswith(RESERVED)]
    if reserved:
        raise UsageError(f"column {reserved[0]}: Spark or Gnomon uses this name; rename the column")
    for name in request.include:
        if name in partitions or name in request.keys:
            raise UsageError(f"include: {name} need not be included, every answer has it")
    source, types = root.source, dict(root.types)
    columns = _of_files(described) if source.columns is None else [(root.name, parse_ddl(source.columns))]
    keys = tuple(_key(name, columns, dict.fromkeys(partitions, TEXT) | types) for name in request.keys)
    is_flat = is_better_flat(len(rows), keys) or (source.versions is not None and _is_flat(partitions, keys))
    flat = is_flat if request.flat is None else request.flat
    spec = IndexSpec(
        source=source_named(root.location, source.name, bool(source.file_name)),
        format=format_name,
        partitions=tuple(partitions),
        keys=keys,
        include=tuple(_column(name, columns, {}) for name in request.include),
        buckets=request.buckets or buckets_for(rows, flat),
        flat=flat,
        options=ordered(request.options if source.columns is None else source.options),
        schema=source.columns or "",
        page_maps=request.page_maps,
        partition_types=types,
    )
    spec = replace(spec, cuts=()) if request.order == RANGE else spec
    check_columns(spec)
    return spec


def has_lost_partitions(spec: IndexSpec, root: SourceRoot) -> bool:
    """Whether the index has partition columns that are columns of the files of its lake table by now. Entries do not
    have the values of such a column, so that they cannot answer for it. A column that is not there any more counts as
    renamed."""
    lost = set(spec.partitions) - root.types.keys()
    return bool(lost) and root.source.columns is not None and lost <= set(parse_ddl(root.source.columns).names)


def repartitioned(spec: IndexSpec, root: SourceRoot) -> IndexSpec:
    """The spec with the partition columns that a lake table has by now: a full build takes them over. The spec itself
    where they are the same."""
    types = dict(root.types)
    if root.source.versions is None or root.source.columns is None or types == dict(spec.partition_types):
        return spec
    columns = [(root.name, parse_ddl(root.source.columns))]
    keys = tuple(_key(key.name, columns, types) for key in spec.keys)
    changed = replace(
        spec,
        partitions=tuple(types),
        partition_types=types,
        keys=keys,
        include=tuple(one for one in spec.include if one.name not in types),
        flat=bool(types) and (spec.flat or _is_flat(tuple(types), keys)),
        folder_buckets={},
    )
    check_columns(changed)
    return changed


def _is_flat(partitions: Sequence[str], keys: Sequence[KeyColumn]) -> bool:
    """Whether the index of a lake table is flat by default: the table has partition columns, and none of them is in the
    key."""
    return bool(partitions) and not any(key.partition for key in keys)


def check_request(
    spec: IndexSpec, request: BuildRequest, root: SourceRoot, format_name: str, partitions: Sequence[str], where: str
) -> None:
    """Raise SpecMismatch, with the differences, for a build with another spec than the index."""
    known = {column.name: column for column in (*spec.keys, *spec.include)}
    wanted = replace(
        spec,
        source=source_named(root.location, root.source.name, bool(root.source.file_name), spec.source.as_files),
        format=format_name,
        partitions=tuple(partitions),
        keys=tuple(known.get(name, KeyColumn(name, UNKNOWN_TYPE)) for name in request.keys),
        include=tuple(known.get(name, KeyColumn(name, UNKNOWN_TYPE)) for name in request.include),
        buckets=spec.buckets if request.buckets is None or spec.cuts is not None else request.buckets,
        cuts=spec.cuts if request.order in (None, spec.order) else () if request.order == RANGE else None,
        flat=spec.flat if request.flat is None or not partitions else request.flat,
        options=_options(spec, request, root),
        partition_types=dict(root.types),
    )
    check_same(spec, wanted, where)


def _options(spec: IndexSpec, request: BuildRequest, root: SourceRoot) -> tuple[tuple[str, str], ...]:
    if root.source.columns is not None:
        return ordered(root.source.options)
    return ordered(request.options) if request.options else spec.options


def check_declared(spec: IndexSpec, root: SourceRoot) -> None:
    """Raise SpecMismatch where a catalog table now declares an indexed column with another type."""
    if root.source.columns is None:
        return
    declared = parse_ddl(root.source.columns)
    for column in (*spec.stored_keys, *spec.include):
        try:
            field = column.field_in(declared)
        except WrongPath as error:
            raise SpecMismatch(f"{error}; build to another folder", root.name) from None
        if field is None or not _fits(field.type, column):
            found = field.type if field is not None else "not there"
            raise SpecMismatch(
                f"column {column.name} is {found} by now, the index was made with "
                f"{column.type}; build to another folder",
                root.name,
            )


def check_places(spec: IndexSpec, root: SourceRoot, files: Iterable[FileInfo]) -> None:
    """Raise SpecMismatch where the entries of the indexed `files` have the values of another column: a lake table gave
    the name of an indexed column to another one, or a catalog table now declares it at another position, and a file has
    columns without names."""
    if root.source.columns is None:
        return
    if root.source.versions is not None:  # its columns have ids or names
        schemas = parse_ddl(spec.schema), parse_ddl(root.source.columns)
        for column in (*spec.stored_keys, *spec.include):
            before, now = map(column.origin_in, schemas)
            if before != now and (info := next(iter(files), None)) is not None:
                what = f"column {column.name} is another one by now than when {info.path} was indexed"
                raise SpecMismatch(what, root.name, action=Action.BUILD_FULL_OR_ELSEWHERE)
        return
    before, now = parse_ddl(spec.schema).names, parse_ddl(root.source.columns).names
    names = [column.column for column in (*spec.stored_keys, *spec.include)]
    moved = [name for name in names if before.index(name) != now.index(name)]
    for info in files if moved else ():
        with listed(root.storage, info) as reader:
            schema = open_source(reader, spec.format, spec.read_options).schema
            for name in moved:
                metadata = (schema.field(name).metadata or {}) if name in schema.names else {}
                if UNNAMED.fullmatch(metadata.get(FILE_COLUMN, b"").decode()):
                    raise SpecMismatch(
                        f"column {name} is number {now.index(name) + 1} by now, it was number "
                        f"{before.index(name) + 1} when {reader.name} was indexed, whose columns have no names",
                        root.name,
                        action=Action.BUILD_FULL_OR_ELSEWHERE,
                    )


def check_types(spec: IndexSpec, described: Sequence[Described]) -> None:
    """Raise UsageError for a file in which an indexed column has another stored type than in the index, or other units,
    and for a column whose name differs in case only, except in a lake table, which tells its columns apart. A column
    may be absent, or of type null."""
    for column in (*spec.stored_keys, *spec.include):
        for one in described:
            alike = None if spec.is_of_lake else spelled_otherwise(one.schema, column.place)
            if alike is not None:  # Spark ignores case, and would read it as this column
                raise UsageError(f"column {alike} differs from {column.name} in case only", one.entry.path)
            if column.path and column.name in one.schema.names:
                what = f"has a column {column.name}, elsewhere in the source it is a field of {column.column}"
                raise UsageError(what, one.entry.path)
            try:
                field = column.field_in(one.schema)
            except WrongPath as error:
                raise UsageError(str(error), one.entry.path) from None
            if field is not None and not _fits(field.type, column):
                raise UsageError(
                    f"column {column.name} is {field.type}, "
                    f"elsewhere in the source it is {column.source_type or column.type}",
                    one.entry.path,
                )


def check_case(known: Collection[str], described: Sequence[Described]) -> None:
    """Raise UsageError where names of columns differ in case only between files, `known` ones among them: Spark, which
    ignores case, would read one column. Names that one file has together are different columns."""
    apart = {name for name in known if sum(name.lower() == other.lower() for other in known) > 1}
    for one in described:
        names = set(one.schema.names)
        if len({name.lower() for name in names}) < len(names):
            apart |= {name for name in names if sum(name.lower() == other.lower() for other in names) > 1}
    spelled = {name.lower(): name for name in known}
    for one in described:
        for name in one.schema.names:
            other = spelled.setdefault(name.lower(), name)
            if other != name and not {name, other} <= apart:
                former = ", or say --full if no file has that name any more" if other in known else ""
                raise UsageError(
                    f"column {name} differs from {other}, which other files have, in case only; write the file again "
                    f"with that name, or index it as a table that declares its columns{former}",
                    one.entry.path,
                )


def check_ragged(ragged: int, rows: int, options: Options, path: str) -> None:
    """Raise UsageError for a CSV file of which more than MOST_RAGGED of the records have fewer or more fields than its
    header, unless the option says that they may: a wrong quote or delimiter reads other records than were written."""
    if ragged > MOST_RAGGED * rows and not flag(options, RAGGED, False):
        raise UsageError(
            f"{ragged:,} of its {rows:,} records have fewer or more fields than the header; "
            "nothing was committed; check the options quote, escape and delimiter, or say --option ragged=true",
            path,
        )


def _fits(arrow: pa.DataType, column: KeyColumn) -> bool:
    same = type_of_arrow(arrow) == column.type and mean_the_same(source_type(arrow), column.source_type)
    return same or pa.types.is_null(arrow)


def _of_files(described: Sequence[Described]) -> Columns:
    return [(one.entry.path, one.schema) for one in described]


def _key(name: str, columns: Columns, partitions: Mapping[str, str]) -> KeyColumn:
    """A key column of the spec: a column with this name or, where no file has one, the field of a struct."""
    if name in partitions or any(name in schema.names for _, schema in columns):
        return _column(name, columns, partitions)
    paths = dict[Path, None]()
    for where, schema in columns:
        try:
            if (path := find_path(schema, name)) is not None:
                paths[path] = None
        except WrongPath as error:
            raise UsageError(str(error), where) from None
    if len(paths) > 1:
        raise UsageError(f"column {name} may be {' and '.join(map(repr, paths))}; rename a field")
    return _column(name, columns, partitions, next(iter(paths), ()))


def _column(name: str, columns: Columns, partitions: Mapping[str, str], nested: Path = ()) -> KeyColumn:
    """A column of the spec. Its type comes from the first file with values of the column."""
    if name in partitions:
        return KeyColumn(name, partitions[name], partition=True)
    there = []
    for path, schema in columns:
        try:
            field = field_at(schema, nested or (name,))
        except WrongPath as error:
            raise UsageError(str(error), path) from None
        there += [(path, field.type)] if field is not None else []
    for path, arrow in there:
        if pa.types.is_null(arrow):
            continue
        found = type_of_arrow(arrow)
        if found is None or not is_key_type(found):
            raise UsageError(
                f"column {name} of type {arrow} cannot be stored in an index; name a column of an atomic type "
                "(decimals: up to 38 digits)",
                path,
            )
        return KeyColumn(name, found, source_type=source_type(arrow), path=nested)
    if there:
        raise UnknownColumn(
            f"column {name} has no type in any file: no values, or none that can be read; name another column"
        )
    known = [*dict.fromkeys(n for _, schema in columns for n in schema.names), *partitions]
    raise UnknownColumn(no_column([name], known))


def infer_schema(
    engine: Engine,
    root: SourceRoot,
    format_name: str,
    options: Options,
    files: Sequence[FileInfo],
    spec: IndexSpec | None,
) -> str:
    """DDL of the known columns and the columns of these files (`jobs.files.merged_columns`). Empty for formats whose
    files declare their columns, and where the user gave a schema."""
    if not is_inferred(format_name, options):
        return ""
    found = engine.columns_of_text(root, format_name, options, files) if files else []
    return merged_columns(format_name, files, found, spec)
