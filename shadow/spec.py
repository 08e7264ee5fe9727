"""What an index is of: source, keys, included columns, buckets, hash. Written once, as `_shadow/spec.json`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from btree.format import LINK_FIELD
from btree.hashing import HASH_NAME, SEED
from btree.keys import is_key_type
from btree.schema import AVRO_NAME, Column, EntrySchema
from shadow import metadata
from shadow.errors import AlreadyExists, DamagedMetadata, IndexNotFound, NewerFormat, SpecMismatch, UsageError
from shadow.snapshots import snapshot_numbers
from shadow.storage import Storage
from sources import POINTER_COLUMNS

FORMAT_NAME, FORMAT_VERSION = "gnomon", 1
PARTITIONED, FLAT = "partitioned", "flat"  # layouts
HASH = {"name": HASH_NAME, "seed": SEED}
SPEC_PATH = "_shadow/spec.json"
MOST_BUCKETS = 65_536
POINTER_TYPES = ("string", "bigint", "int", "int")
POINTER_SCHEMA = tuple(Column(n, t, nullable=False) for n, t in zip(POINTER_COLUMNS, POINTER_TYPES, strict=True))


@dataclass(frozen=True)
class KeyColumn:
    """A key column: its name in the source, its type, and whether it is a partition column (then it is not stored
    with the entries: it names the partition to look in)."""

    name: str
    type: str
    partition: bool = False


@dataclass(frozen=True)
class IndexSpec:
    """`source` is the root (or the one file, then `single_file`); `partitions` its partition columns in order.

    An index is laid out in the partition folders of its source, or `flat`: one set of buckets over all partitions,
    whose columns then stand in the entries, as text. So a look-up that names no partition costs the same however many
    there are."""

    source: str
    single_file: bool
    format: str
    partitions: tuple[str, ...]
    keys: tuple[KeyColumn, ...]
    include: tuple[KeyColumn, ...]
    buckets: int
    flat: bool = False

    def folder_of(self, partition: str) -> str:
        """The folder of the index files for a partition of the source."""
        return "" if self.flat else partition

    @cached_property
    def stored_partitions(self) -> tuple[str, ...]:
        """The partition columns that stand in the entries."""
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
        """The stored columns' names in the index files: those that Avro cannot hold, or that are taken, are escaped."""
        # The engines that read the files as a table do not tell upper from lower case, and see the folders as columns.
        folders = () if self.flat else self.partitions
        taken = {name.lower() for name in (*POINTER_COLUMNS, LINK_FIELD, *folders)}
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
        return EntrySchema(keys, included + partitions + POINTER_SCHEMA)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "source": {"location": self.source, "single_file": self.single_file, "format": self.format},
            "layout": FLAT if self.flat else PARTITIONED,
            "partitions": list(self.partitions),
            "keys": [_column_json(key, self.file_names) for key in self.keys],
            "include": [_column_json(column, self.file_names) for column in self.include],
            "buckets": self.buckets,
            "hash": HASH,
        }

    @property
    def checksum(self) -> int:
        """The checksum of its file, by which snapshots know it."""
        return metadata.checksum(self.to_json())


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
    out |= {"partition": True} if column.partition else {}
    return out | ({"column": file_names[column.name]} if column.name in file_names else {})


def _column(content: dict[str, Any]) -> KeyColumn:
    return KeyColumn(content["name"], content["type"], content.get("partition", False))


def read_spec(storage: Storage) -> IndexSpec:
    """The spec of the index at a storage root. IndexNotFound, NewerFormat or DamagedMetadata otherwise."""
    return read_spec_and_checksum(storage)[0]


def read_spec_and_checksum(storage: Storage) -> tuple[IndexSpec, int]:
    """The spec, and the checksum of its file, by which snapshots know it."""
    where = f"{storage.root}/{SPEC_PATH}"
    try:
        content = metadata.read(storage, SPEC_PATH)
    except (FileNotFoundError, NotADirectoryError):
        if snapshot_numbers(storage):
            raise DamagedMetadata(
                f"{where}: missing, though there are snapshots; restore it or rebuild the index"
            ) from None
        raise IndexNotFound(
            f"{storage.root}: not an index ({SPEC_PATH} is not there); gnomon build makes one"
        ) from None
    version = content.get("format_version")
    if content.get("format") != FORMAT_NAME or not isinstance(version, int):
        raise DamagedMetadata(f"{where} at byte 0: expected the spec of an index; restore it or rebuild the index")
    if version > FORMAT_VERSION:
        raise NewerFormat(f"{where}: format version {version}, this program knows {FORMAT_VERSION}; upgrade it")
    try:
        spec = _spec(content)
        known = _is_known(spec, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedMetadata(f"{where} at byte 0: not a spec ({error!r}); rebuild the index") from None
    if not known:
        raise NewerFormat(f"{where}: a hash, a layout or a key type that this program does not know; upgrade it")
    return spec, metadata.checksum(content)


def _spec(content: dict[str, Any]) -> IndexSpec:
    source = content["source"]
    return IndexSpec(
        source=source["location"],
        single_file=source["single_file"],
        format=source["format"],
        partitions=tuple(content["partitions"]),
        keys=tuple(map(_column, content["keys"])),
        include=tuple(map(_column, content["include"])),
        buckets=content["buckets"],
        flat=content["layout"] == FLAT,
    )


def _is_known(spec: IndexSpec, content: dict[str, Any]) -> bool:
    """Whether this program hashes, lays out and compares keys as the one that wrote the index."""
    types_known = all(is_key_type(column.type) for column in (*spec.keys, *spec.include))
    return types_known and content["layout"] in (PARTITIONED, FLAT) and content["hash"] == HASH


def create_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec, create-only. The same spec may be there already (an earlier build that got no further)."""
    try:
        storage.put_new(SPEC_PATH, [metadata.encode(spec.to_json())])
    except AlreadyExists:
        existing, checksum = read_spec_and_checksum(storage)
        check_same(existing, spec, storage.root)
        if checksum != spec.checksum:
            raise SpecMismatch(f"{storage.root}: the spec was written by another version of this program") from None


def check_same(existing: IndexSpec, wanted: IndexSpec, where: str) -> None:
    """Raise SpecMismatch, with the differences, when two specs are not the same."""
    before, after = existing.to_json(), wanted.to_json()
    differences = [
        f"{name}: {before.get(name)} in the index, {after.get(name)} asked for"
        for name in after
        if before.get(name) != after.get(name)
    ]
    if differences:
        raise SpecMismatch(f"{where}: another spec; {'; '.join(differences)}; build to another folder")


def check_columns(spec: IndexSpec) -> None:
    """Refuse keys that cannot work: none, a column twice, or partition columns alone."""
    names = [column.name for column in (*spec.keys, *spec.include)]
    if len(set(names)) < len(names):
        raise UsageError(f"a key or included column is named twice: {', '.join(names)}")
    if not spec.stored_keys:
        raise UsageError("a key of partition columns alone finds whole partitions; name a column of the files, too")
