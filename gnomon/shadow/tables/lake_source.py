"""A lake table (Delta, Iceberg) as a source: at one version, its live files, their partitions, its columns and the rows
that it has deleted. All of this comes from the table's metadata; no folder is listed."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.shadow.errors import SpecMismatch, UsageError
from gnomon.shadow.storage import ANY_TIME, Credential, FileInfo, Readable, Vendor, govern, missing
from gnomon.shadow.tables.table_source import LakeContent, Recorded, TableHistory, TableVersion
from gnomon.sources import OptionError
from gnomon.sources.types import COMMENT, to_ddl

# The name of a format in a source's name: its module, imported on first use, and the package that it needs.
LAKE_FORMATS = {
    "delta": ("gnomon.shadow.tables.delta", "deltalake", "delta"),
    "iceberg": ("gnomon.shadow.tables.iceberg", "pyiceberg", "iceberg"),
}
MAIN = "main"  # the name of the line of history that readers of a table follow
NOT_READ = {
    "hudi": "Hudi's Python client estimates the rows of files and cannot read its logs by row, so that no index of it "
    "could be proven whole; build the index of a plain copy, or of a Delta or Iceberg table",
}


@dataclass(frozen=True)
class LakeSource:
    """A lake table as the source of an index. `name` is the one by which `build` accepts it. `version` chooses an older
    version of the table, or, for a table whose newest version cannot be found, the one on record. `partitions` are the
    partition columns of its index. A table that has these and others gives the others as columns of the files, so that
    an index goes on when the table gets more; a table that lacks one gives its own."""

    name: str
    version: TableVersion | None = None
    partitions: tuple[str, ...] | None = None
    format: str = "parquet"

    @cached_property
    def content(self) -> LakeContent:
        """The table, read once. SourceNotFound where there is none, UsageError for one that is not read, StorageError
        where its metadata cannot be read."""
        return _format(self.name).read_content(place_of_name(self.name), self.version, self.partitions)

    def now(self) -> "LakeSource":
        """The same table, but its metadata is read again."""
        return replace(self)

    def within(self, partitions: tuple[str, ...]) -> "LakeSource":
        """The same table for an index with these partition columns. It is read again if it has others, too."""
        if tuple(self.types) == partitions or not self.types.keys() >= set(partitions):
            return self
        return replace(self, partitions=partitions)

    def newest(self, known: TableVersion) -> TableVersion:
        """The newest version of the table, by one small read. `known` is the version on record. Errors as in
        `content`."""
        return _format(self.name).newest_version(place_of_name(self.name), known)

    def history(self, known: TableVersion) -> TableHistory:
        """The versions of the table, by its newest metadata. `known` is the version on record. Errors as in
        `content`."""
        return _format(self.name).read_history(place_of_name(self.name), known)

    def count(self, known: TableVersion) -> int:
        return _format(self.name).count_rows(place_of_name(self.name), known)

    @property
    def source_name(self) -> str:
        return self.name

    @property
    def location(self) -> str:
        return self.content.root

    @property
    def types(self) -> Mapping[str, str]:
        return self.content.types

    @property
    def columns(self) -> str:
        return self.content.columns

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    @property
    def file_name(self) -> str:
        return ""

    @property
    def folders_elsewhere(self) -> Sequence[str]:
        """Always empty: the table's metadata names each file, wherever it lies."""
        return ()

    @property
    def recorded(self) -> Recorded:
        return Recorded(version=self.content.version)

    @property
    def versions(self) -> "LakeSource":
        return self

    def partition_of(self, path: str, partitioned: bool = True) -> str:  # the metadata of the table has it
        file = self.content.files.get(path)
        return "" if file is None else file.partition

    def is_still_in(self, path: str, partition: str) -> bool:
        return self.partition_of(path) == partition

    def list(self, storage: Readable | None = None) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """The live files, ordered by path. No modification time is recorded, since a table never uses the name of a
        data file again."""
        return [FileInfo(path, file.size, ANY_TIME) for path, file in sorted(self.content.files.items())], []

    def is_before(self, known: TableVersion) -> bool:
        """Whether its version is older than `known`. A format whose versions have no order has no older version."""
        return _format(self.name).is_before(self.content.version, known)

    def check_follows(self, known: TableVersion) -> None:
        """Raise SpecMismatch where the table is not the one with the version `known`, or where its version is older
        than `known`."""
        found = self.content.version
        if found.uuid != known.uuid:
            raise SpecMismatch(
                "the table was replaced by another one of this name",
                self.name,
                action=Action.BUILD_FULL_OR_ELSEWHERE,
                expected=f"the table with id {known.uuid}",
                found=found.uuid,
            )
        if self.is_before(known):
            raise SpecMismatch(
                "the index covers a newer version of the table",
                self.name,
                action=Action.ACCEPT_OLDER_TABLE,
                expected=f"version {known.version} or later",
                found=found.version,
            )


def is_lake(source: str) -> bool:
    """Whether a source is the name of a lake table."""
    kind, colon, _ = source.partition(":")
    return bool(colon) and (kind in LAKE_FORMATS or kind in NOT_READ)


def lake_source(name: str, version: str = "") -> LakeSource:
    """Read the lake table that a user named. The result has the table's own name, which the index records. `version` is
    the number of a Delta version or the id of an Iceberg snapshot. Errors as in `LakeSource.content`."""
    found = LakeSource(name, TableVersion("", version) if version else None)
    named = replace(found, name=found.content.name)
    named.__dict__["content"] = found.content  # the cached property: the table is read once
    return named


def govern_table(name: str, root: str) -> Vendor | None:
    """Open the files below the root of a table with the credentials that its catalog vends, if it is a table of a
    catalog that may vend some; None for other tables. Nothing is asked before a file is opened."""
    if not name.startswith("iceberg:") or "/" in name:
        return None
    return govern(root, name, partial(_vended, name))


def _vended(name: str) -> Sequence[Credential] | UsageError:
    return _format(name).vended(place_of_name(name))


class _Format(Protocol):
    """The interface of a module that reads tables of one format."""

    def read_content(
        self, place: str, version: TableVersion | None, partitions: Collection[str] | None
    ) -> LakeContent: ...

    def newest_version(self, place: str, known: TableVersion) -> TableVersion: ...

    def is_before(self, version: TableVersion, known: TableVersion) -> bool: ...

    def read_history(self, place: str, known: TableVersion) -> TableHistory: ...

    def count_rows(self, place: str, version: TableVersion) -> int: ...

    def vended(self, place: str) -> Sequence[Credential] | UsageError: ...


def place_of_name(name: str) -> str:
    """The part of a table's name after its format: a path, a URL, or a name in a catalog."""
    return name.partition(":")[2]


def _format(name: str) -> _Format:
    return cast(_Format, format_module(name))


def format_module(name: str, suffix: str = "") -> object:
    """The module of a table's format, or the one with this suffix. UsageError for a format that is not read, and for a
    missing package."""
    kind = name.partition(":")[0]
    if kind in NOT_READ:
        raise UsageError(NOT_READ[kind], name)
    module, package, extra = LAKE_FORMATS[kind]
    try:
        return import_module(f"{module}{suffix}")
    except ImportError as error:
        what = f"reading it needs {missing(package, error)}; run pip install 'gnomon-index[{extra}]'"
        raise UsageError(what, name) from None


def field_of(
    name: str, kind: pa.DataType, field_id: int | None, names: tuple[str, ...], default: object = None
) -> pa.Field:
    """A column, or a field of a struct, that files have under a field id or under other names, with its default as a
    JSON value. `gnomon.sources.types.ddl` reads the record."""
    record: dict[str, Any] = {} if field_id is None else {"id": field_id}
    record |= {"names": list(names)} if names else {}
    record |= {} if default is None else {"default": default}
    return pa.field(name, kind, metadata={COMMENT: json.dumps(record)} if record else None)


def ddl_of(fields: Iterable[pa.Field], name: str) -> str:
    """The DDL of a table's columns. UsageError for one whose type is not read."""
    try:
        return to_ddl(pa.schema(fields))
    except OptionError as error:
        raise UsageError(str(error), name) from None
