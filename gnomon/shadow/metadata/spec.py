"""The spec of an index: source, keys, included columns, buckets, hash."""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Literal, cast

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.hashes_python import SEED
from gnomon.btree.format import LINK_FIELD
from gnomon.btree.hashing import HASH_NAME
from gnomon.btree.key_types import MAPPED, is_key_type, key_type
from gnomon.btree.keys import Key
from gnomon.btree.schema import AVRO_NAME, Column, EntrySchema
from gnomon.shadow.errors import DamagedMetadata, NewerFormat, SpecMismatch, UsageError
from gnomon.shadow.metadata.buckets import HASH, RANGE, BucketOrder, Buckets, HashBuckets, RangeBuckets, is_ascending
from gnomon.shadow.metadata.entry_kinds import (
    FLAT,
    POINTER_ENTRIES,
    VALUE_ENTRIES,
    VALUES,
    PointerEntries,
    ValueEntries,
)
from gnomon.shadow.tables import TABLE_PREFIX, govern_table, is_lake
from gnomon.sources import DECLARED
from gnomon.sources.nested import Path, WrongPath, array_at, field_at, nested_option, origin_at, path_name

FORMAT_NAME, FORMAT_VERSION = "gnomon", 2
WITHOUT_PATHS = 1  # the version of a spec without a key in a struct: older programs would read it as a column
HASHED, IN_RANGES = {"name": HASH_NAME, "seed": SEED}, {"name": RANGE}
MOST_BUCKETS = 65_536
ENTRIES_PER_BUCKET = 500_000  # in the largest partition (flat: in all), to choose a bucket count that is not given
MOST_FOLDERS = 32  # with more partitions, a first build lays the index out flat by default


PageMapsSetting = bool | Literal["deep"]  # whether page maps are recorded; "deep": with value maps
DEEP: Literal["deep"] = "deep"


def most_maps(first: PageMapsSetting, second: PageMapsSetting) -> PageMapsSetting:
    """The setting of `page_maps` that records everything that either setting records."""
    return DEEP if DEEP in (first, second) else first or second


def schema_option(table: str, schema: str) -> dict[str, str]:
    """The option to open files that do not declare their columns, or that belong to a table that declares them."""
    return {DECLARED if table else "schema": schema} if schema else {}


@dataclass(frozen=True)
class KeyColumn:
    """A key column: its name in the source, its type, and whether it is a partition column, which selects partitions
    and is not stored with the entries. `source_type` is the type in the source where it is mapped to `type`
    (`gnomon.btree.key_types`). It comes from the first file indexed, and keys are given and shown in it. `path` has the
    names from a column down to a field of a struct, whose name is the path with dots; it is empty for a column."""

    name: str
    type: str
    partition: bool = False
    source_type: str | None = None
    path: Path = ()

    @property
    def column(self) -> str:
        """The source's column that has the values."""
        return self.path[0] if self.path else self.name

    @property
    def place(self) -> Path:
        """The names from a column of the source down to the values."""
        return self.path or (self.name,)

    def field_in(self, source: pa.Schema) -> pa.Field | None:
        """The field of a source's columns that has the values; None where they lack it. WrongPath where a column on the
        path is no struct."""
        return field_at(source, self.place)

    def origin_in(self, table: pa.Schema) -> tuple[object, ...] | None:
        """The origin of the key in the files of a table with these columns: `origin_at`."""
        return origin_at(table, self.place)

    def given_in(self, given: pa.Schema) -> pa.Field | None:
        """The field of given rows that has the key: the column of its name, else the field of its path. None where
        they have neither. UsageError where a column on the path is no struct."""
        if self.name in given.names:
            return given.field(given.names.index(self.name))
        try:
            return self.field_in(given)
        except WrongPath as error:
            raise UsageError(str(error)) from None

    def values_in(self, given: pa.RecordBatch) -> pa.Array:
        """The keys of given rows, which have a field `given_in`."""
        if self.name in given.schema.names:
            return given.column(self.name)
        return array_at(given.column(self.column), self.path[1:])


@dataclass(frozen=True)
class Source:
    """The source of an index. `location` is the root of its files when the index was made, or the one file.
    `as_files`: the files belong to a lake table, and the user asked to index every one of them."""

    location: str = ""
    as_files: bool = False

    @property
    def name(self) -> str:
        """The name by which `build` accepts the source."""
        return self.location

    @property
    def table(self) -> str:
        """The name of a table; empty for files without one."""
        return ""

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"location": self.location, "single_file": isinstance(self, OneFile)}
        content |= {"table": self.table} if self.table else {}
        return content | ({"as_files": True} if self.as_files else {})


class NoSource(Source):
    """The source of a key-value folder, whose entries are its rows."""


class Folder(Source):
    """The files of a folder."""


class OneFile(Source):
    """One file."""


@dataclass(frozen=True)
class TableSource(Source):
    """A table, which declares its columns. `of` is its name."""

    of: str = ""

    @property
    def table(self) -> str:
        return self.of


class CatalogSource(TableSource):
    """A table of Spark's catalog: `of` is "db.name"."""

    @property
    def name(self) -> str:
        return f"{TABLE_PREFIX}{self.of}"


@dataclass(frozen=True)
class LakeTableSource(TableSource):
    """A Delta or Iceberg table: `of` is the name by which `build` accepts it ("delta:/path"). Each process that has it,
    also a task that unpickles it, opens the table's files with the credentials that its catalog vends."""

    def __post_init__(self) -> None:
        govern_table(self.of, self.location)

    def __reduce__(self) -> tuple[type["LakeTableSource"], tuple[str, bool, str]]:
        return type(self), (self.location, self.as_files, self.of)

    @property
    def name(self) -> str:
        return self.of


def source_named(location: str, table: str = "", single_file: bool = False, as_files: bool = False) -> Source:
    """The source at a location: of files, or of a table with this name."""
    if table:
        kind = LakeTableSource if is_lake(table) else CatalogSource
        return kind(location, as_files, table)
    return OneFile(location, as_files) if single_file else Folder(location, as_files)


@dataclass(frozen=True)
class IndexSpec:
    """`source` is what the index is of; `partitions` has its partition columns in order.

    An index is laid out in the partition folders of its source, or `flat`: one set of buckets over all partitions,
    whose columns the entries then have, as text. So a look-up without a partition costs the same for any number of
    partitions.

    `options` are the user's options of the format, ordered. `schema` has the columns that builds inferred, as DDL, for
    formats whose files do not declare them; it grows with the files. `page_maps`: builds record the page maps of the
    files that they index; where it is DEEP, also the value maps of their pages. The format VALUES has no source:
    `include` has the columns, which only the entries hold, and entries have no pointers. `folder_buckets` is the number
    of buckets of each partition folder of it; each number divides `buckets`, the number of all other folders. `cuts`
    are the keys between buckets that are ranges of keys, in stored form; None where keys are hashed.

    For a table, `partition_types` has the types of the partition columns, in order, and `schema` its other columns as
    it declares them now; for a lake table, `schema` names its columns in the files, too. For other sources
    `partition_types` is empty: partition values are text."""

    source: Source
    format: str
    partitions: tuple[str, ...]
    keys: tuple[KeyColumn, ...]
    include: tuple[KeyColumn, ...]
    buckets: int
    flat: bool = False
    options: tuple[tuple[str, str], ...] = ()
    schema: str = ""
    page_maps: PageMapsSetting = False
    partition_types: Mapping[str, str] = field(default_factory=dict)
    folder_buckets: Mapping[str, int] = field(default_factory=dict)
    cuts: tuple[Key, ...] | None = None

    @property
    def order(self) -> BucketOrder:
        """How keys are distributed to buckets: by hash, or in ranges."""
        return HASH if self.cuts is None else RANGE

    @cached_property
    def bucketing(self) -> Buckets:
        """The bucket of each key, in folders with `buckets` buckets."""
        if self.cuts is not None:
            return RangeBuckets(self.key_types, self.cuts)
        return HashBuckets(self.key_types, self.buckets)

    def bucketing_in(self, folder: str) -> Buckets:
        """The bucket of each key in a folder of index files."""
        number = self.folder_buckets.get(folder)
        return self.bucketing if number is None else HashBuckets(self.key_types, number)

    @property
    def holds_values(self) -> bool:
        """Whether this is the spec of a key-value folder, whose entries hold values instead of pointers."""
        return self.format == VALUES

    @cached_property
    def entries(self) -> PointerEntries | ValueEntries:
        """The kind of the entries."""
        return VALUE_ENTRIES if self.holds_values else POINTER_ENTRIES

    @property
    def layout(self) -> str:
        return self.entries.layout(self.flat, self.partitions)

    @property
    def read_options(self) -> dict[str, str]:
        """The options with which the source's files are opened."""
        declared = schema_option(self.source.table, self.schema)
        return dict(self.options) | declared | nested_option(key.path for key in self.keys)

    @property
    def is_of_table(self) -> bool:
        """Whether the source is a table, which declares its columns."""
        return isinstance(self.source, TableSource)

    @property
    def is_of_lake(self) -> bool:
        """Whether the source is a Delta or Iceberg table."""
        return isinstance(self.source, LakeTableSource)

    @property
    def remedy(self) -> Action:
        """The advice for a damaged index file."""
        return self.entries.remedy

    def partition_type(self, name: str) -> str:
        """The type of a partition column."""
        return self.partition_types.get(name, "string")

    def folder_of(self, partition: str) -> str:
        """The folder of the index files of a partition."""
        return "" if self.flat else partition

    def buckets_in(self, folder: str) -> int:
        """The number of buckets of a folder of index files."""
        return self.folder_buckets.get(folder, self.buckets)

    def in_folder(self, folder: str) -> "IndexSpec":
        """The spec of a folder of index files: `buckets` is its own number."""
        if not self.folder_buckets:
            return self
        return replace(self, buckets=self.buckets_in(folder), folder_buckets={})

    def folders_of(self, partitions: Collection[str]) -> Collection[str]:
        """The folders of the index files of some partitions."""
        return partitions if not self.flat else ("",) if partitions else ()

    @cached_property
    def stored_partitions(self) -> tuple[str, ...]:
        """The partition columns that the entries have."""
        return self.partitions if self.flat else ()

    @cached_property
    def stored_keys(self) -> tuple[KeyColumn, ...]:
        """The key columns that are hashed, ordered and stored."""
        return tuple(key for key in self.keys if not key.partition)

    @cached_property
    def key_types(self) -> tuple[str, ...]:
        return tuple(key.type for key in self.stored_keys)

    @cached_property
    def file_names(self) -> dict[str, str]:
        """The names of the stored columns in the index files. Names that Avro cannot hold, or that are taken, are
        escaped."""
        # Engines that read the files as a table ignore upper and lower case, and see the folders as columns.
        folders = () if self.flat else self.partitions
        pointers = (column.name for column in self.entries.pointer_columns)
        taken = {name.lower() for name in (*pointers, LINK_FIELD, *folders)}
        names: dict[str, str] = {}
        stored = [column.name for column in (*self.stored_keys, *self.include)]
        for name in (*stored, *self.stored_partitions):
            names[name] = _file_name(name, taken)
            taken.add(names[name].lower())
        return names

    @cached_property
    def entry_schema(self) -> EntrySchema:
        """The columns of the index files."""
        keys = tuple(Column(self.file_names[key.name], key.type) for key in self.stored_keys)
        included = tuple(Column(self.file_names[column.name], column.type) for column in self.include)
        partitions = tuple(Column(self.file_names[name], "string") for name in self.stored_partitions)
        return EntrySchema(keys, included + partitions + self.entries.pointer_columns)

    def to_json(self) -> dict[str, Any]:
        source = {**self.source.to_json(), "format": self.format}
        source |= {"options": dict(self.options)} if self.options else {}
        source |= {"schema": self.schema} if self.schema else {}
        content: dict[str, Any] = {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION if any(key.path for key in self.keys) else WITHOUT_PATHS,
            "source": source,
            "layout": self.layout,
            "partitions": list(self.partitions),
            "keys": [_column_json(key, self.file_names) for key in self.keys],
            "include": [_column_json(column, self.file_names) for column in self.include],
            "buckets": self.buckets,
            "hash": HASHED if self.cuts is None else IN_RANGES,
        }
        content |= {} if self.cuts is None else {"cuts": [self._cut_json(cut) for cut in self.cuts]}
        content |= {"partition_types": dict(self.partition_types)} if self.partition_types else {}
        content |= {"folder_buckets": dict(self.folder_buckets)} if self.folder_buckets else {}
        return content | ({"page_maps": self.page_maps} if self.page_maps else {})

    def _cut_json(self, cut: Key) -> list[Any]:
        return [key_type(kind).to_json(value) for value, kind in zip(cut, self.key_types, strict=True)]

    def is_like(self, other: "IndexSpec") -> bool:
        """Whether both specs define the same entries. Name and place of the source, buckets, layout, inferred columns
        and `page_maps` may differ."""
        names = ("source", "buckets", "folder_buckets", "cuts", "flat", "schema", "page_maps")
        may_differ = {name: getattr(other, name) for name in names}
        are_files = isinstance(self.source, OneFile) == isinstance(other.source, OneFile)
        return are_files and replace(self, **may_differ) == other


def _file_name(name: str, taken: set[str]) -> str:
    """The name in the index file: the column's own, or with every character Avro refuses as `_xHEX_`."""
    escaped = "".join(c if AVRO_NAME.fullmatch("_" + c) else f"_x{ord(c):x}_" for c in name)
    if not AVRO_NAME.fullmatch(escaped):
        escaped = "_" + escaped
    while escaped.lower() in taken:
        escaped += "_"
    return escaped


def _column_json(column: KeyColumn, file_names: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": column.name, "type": column.type}
    out |= {"source_type": column.source_type} if column.source_type else {}
    out |= {"partition": True} if column.partition else {}
    out |= {"path": list(column.path)} if column.path else {}
    return out | ({"column": file_names[column.name]} if column.name in file_names else {})


def _column(content: dict[str, Any]) -> KeyColumn:
    name, path = content["name"], tuple(content.get("path", ()))
    if path and (len(path) < 2 or path_name(path) != name):
        raise TypeError(f"column {name} with the path {path}")
    return KeyColumn(name, content["type"], content.get("partition", False), content.get("source_type"), path)


def parse_spec(content: Any, where: str) -> IndexSpec:
    """The spec from the result of `to_json`. NewerFormat or DamagedMetadata, with the path `where`, if it cannot be
    parsed."""
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or content.get("format") != FORMAT_NAME:
        raise DamagedMetadata("", where, 0, action=Action.BUILD_FULL, expected="the spec of an index")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"format version {version}, this program knows {FORMAT_VERSION}", where, action=Action.UPGRADE
        )
    try:
        spec = _spec(content)
        known = _is_known(spec, content)
        astray = [folder for folder, number in spec.folder_buckets.items() if number < 1 or spec.buckets % number]
        is_cut = spec.cuts is None or (len(spec.cuts) == spec.buckets - 1 and is_ascending(spec.cuts))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedMetadata(f"not a spec ({error!r})", where, 0, action=Action.BUILD_FULL) from None
    if astray:
        raise DamagedMetadata(
            f"folder {astray[0]}",
            where,
            0,
            action=Action.BUILD_FULL,
            expected=f"a number of buckets that divides {spec.buckets}",
            found=spec.folder_buckets[astray[0]],
        )
    if not is_cut:
        what = f"expected {spec.buckets - 1} ascending cuts for {spec.buckets} buckets"
        raise DamagedMetadata(what, where, 0, action=Action.BUILD_FULL)
    if not known:
        raise NewerFormat(
            "a hash, a layout, a key type or page maps that this program does not know", where, action=Action.UPGRADE
        )
    return spec


def _spec(content: dict[str, Any]) -> IndexSpec:
    source = content["source"]
    spec = IndexSpec(
        source=_source(source),
        format=source["format"],
        partitions=tuple(content["partitions"]),
        keys=tuple(map(_column, content["keys"])),
        include=tuple(map(_column, content["include"])),
        buckets=content["buckets"],
        flat=content["layout"] == FLAT,
        options=ordered(source.get("options", {})),
        schema=source.get("schema", ""),
        page_maps=content.get("page_maps", False),
        partition_types=dict(content.get("partition_types", {})),
        folder_buckets=dict(content.get("folder_buckets", {})),
    )
    return replace(spec, cuts=_cuts(spec, content["cuts"])) if "cuts" in content else spec


def _cuts(spec: IndexSpec, content: list[list[Any]]) -> tuple[Key, ...]:
    names = [(key_type(key.type), key.name) for key in spec.stored_keys]
    cuts = (zip(cut, names, strict=True) for cut in content)
    return tuple(tuple(kind.to_stored(value, name) for value, (kind, name) in cut) for cut in cuts)


def _source(content: dict[str, Any]) -> Source:
    if content["format"] == VALUES:
        return NoSource()
    table, as_files = content.get("table", ""), content.get("as_files", False)
    return source_named(content["location"], table, content["single_file"], as_files)


def buckets_for(rows_by_partition: Mapping[str, int], flat: bool) -> int:
    """The default number of hash buckets for a number of rows."""
    rows = sum(rows_by_partition.values()) if flat else max(rows_by_partition.values(), default=0)
    return min(max(-(-rows // ENTRIES_PER_BUCKET), 1), MOST_BUCKETS)


def is_better_flat(partitions: int, keys: Iterable[KeyColumn]) -> bool:
    """Whether an index of this many partitions is flat by default. In a partitioned index, a look-up without a
    partition opens an index file in each: 36 ms of CPU for a thousand partitions, 0.2 ms in a flat index. A key with a
    partition column always names its partition."""
    return partitions > MOST_FOLDERS and not any(key.partition for key in keys)


def ordered(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Options in the form and order of a spec."""
    return tuple(sorted(options.items()))


def _is_known(spec: IndexSpec, content: dict[str, Any]) -> bool:
    """Whether this program knows the hash, the layout, the key types and the page maps of the index."""
    columns = (*spec.keys, *spec.include)
    types_known = all(is_key_type(column.type) and column.source_type in (None, *MAPPED) for column in columns)
    types_known = types_known and all(map(is_key_type, spec.partition_types.values()))
    types_known = types_known and spec.page_maps in (False, True, DEEP)
    types_known = types_known and content["layout"] == spec.layout
    return types_known and content["hash"] == (HASHED if spec.cuts is None else IN_RANGES)


def spec_differences(before: IndexSpec, after: IndexSpec) -> list[tuple[str, Any, Any]]:
    """The members in which two specs differ, with the value of each; the source's members are listed one by one."""
    old, new = _members(before), _members(after)
    names = dict.fromkeys([*old, *new])
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def shown(value: Any) -> str:
    """The text of a spec's member in an error."""
    if isinstance(value, list):
        return ", ".join(one if isinstance(one, str) else _shown_column(one) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"
    return "none" if value is None or value == "" else str(value)


def _shown_column(column: dict[str, Any]) -> str:
    """The column's name, and its type, if known: a column that is not in the index yet has none."""
    return f"{column['name']} {column['type']}" if is_key_type(column["type"]) else str(column["name"])


def _members(spec: IndexSpec) -> dict[str, Any]:
    content = spec.to_json()
    source = content.pop("source")
    del content["hash"]
    cuts = json.dumps(content.pop("cuts", [])).encode()
    content["order"] = f"{spec.order} cut at {zlib.crc32(cuts):08x}" if spec.cuts else str(spec.order)
    return {f"source {name}": value for name, value in source.items()} | content


def check_same(existing: IndexSpec, wanted: IndexSpec, where: str) -> None:
    """Raise SpecMismatch, with the differences, when two specs are not the same."""
    differences = spec_differences(existing, wanted)
    if differences:
        shown_differences = "; ".join(
            f"{name}: {shown(old)} in the index, {shown(new)} asked for" for name, old, new in differences
        )
        names = {name for name, _, _ in differences}
        cure = ", or say --adopt where SOURCE is a copy" if "source location" in names else ""
        cure += f", or run gnomon rebucket {where} --buckets {wanted.buckets}" if "buckets" in names else ""
        cure += f", or run gnomon rebucket {where} --order {wanted.order}" if "order" in names else ""
        layout = "--flat" if wanted.flat else "--partitioned"
        cure += f", or run gnomon rebucket {where} {layout}" if "layout" in names else ""
        is_of_table = "partitions" in names and wanted.is_of_table
        cure += ", or say --full to take over the table's partition columns" if is_of_table else ""
        cure += ", or leave --option and --schema out: the index has its own" if "source options" in names else ""
        raise SpecMismatch(f"another spec; {shown_differences}; build to another folder{cure}", where)


def check_names(what: str, names: object) -> None:
    """Raise UsageError unless `names` is a list of column names. A string is refused, too: as a sequence it would be
    one column per character. So is a generator, which is empty when it is read again, and a set, which has no order."""
    if names is None:
        return
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes, Mapping, set, frozenset))
    if not is_list or not all(isinstance(name, str) for name in cast(Collection[object], names)):
        raise UsageError(what, expected="a list of column names", found=repr(names))


def other_delimiter(names: Sequence[str]) -> str:
    """A hint for the columns of a file whose header another delimiter separates; empty for other columns."""
    mark = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    return f"; its fields seem to be separated by {mark!r}, not by commas" if mark else ""


def no_column(unknown: Collection[str], known: Iterable[str]) -> str:
    """The words for columns that a source does not have, with those that differ from one only in case."""
    there = list(known)
    alike = [name for name in there if name.lower() in {one.lower() for one in unknown}]
    shown = ", ".join(name if name.strip() else repr(name) for name in unknown)
    hint = f"; did you mean {', '.join(alike)}?" if alike else ""
    return f"the source has no column {shown}; it has {', '.join(there) or 'none'}{hint or other_delimiter(there)}"


def check_number(what: str, number: object) -> None:
    """Raise UsageError unless `number` is None or a whole number, not negative."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, Integral) or int(number) < 0):
        raise UsageError(what, expected="a whole number from 0", found=repr(number))


def check_buckets(buckets: object) -> None:
    """Raise UsageError for a number of buckets that an index cannot have."""
    if not isinstance(buckets, int) or not 1 <= buckets <= MOST_BUCKETS:
        raise UsageError("buckets", expected=f"1 to {MOST_BUCKETS}", found=repr(buckets))


def check_order(order: object) -> None:
    """Raise UsageError unless `order` is None, "hash" or "range"."""
    if order not in (*BucketOrder, None):
        raise UsageError("order", expected=" or ".join(BucketOrder), found=repr(order))


def with_cuts(spec: IndexSpec, cuts: tuple[Key, ...]) -> IndexSpec:
    """The spec of an index whose buckets are the ranges between these keys."""
    return replace(spec, cuts=cuts, buckets=len(cuts) + 1)


def check_columns(spec: IndexSpec) -> None:
    """Raise UsageError for invalid keys: none, a column twice, or partition columns alone."""
    names = [column.name for column in (*spec.keys, *spec.include)]
    if len(set(names)) < len(names):
        raise UsageError(f"a key or included column is named twice: {', '.join(names)}")
    spec.entries.check_included(spec.include)
    if not spec.stored_keys:
        raise UsageError("a key of partition columns alone finds whole partitions; name a column of the files, too")
