"""Segments and their manifests. A segment is the result of one build. Its manifest, `_shadow/segments/<id>.avro`, lists
its index files, with their checksums, and exactly the source files that they cover, with their fingerprints. It never
changes."""

import hashlib
import io
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, cast

import fastavro
from fastavro.schema import SchemaParseException

from gnomon.base.errors import Action
from gnomon.btree.format import SYNC_BYTES
from gnomon.shadow.errors import AlreadyExists, DamagedMetadata
from gnomon.shadow.metadata.immutable_files import read_named
from gnomon.shadow.metadata.masks import Masks
from gnomon.shadow.storage import FileInfo, Storage

SEGMENT_FOLDER = "_shadow/segments"
_UNREADABLE = (  # errors of a read of bytes that are no manifest
    *(ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError),
    *(SchemaParseException, struct.error, zlib.error),
)


@dataclass(frozen=True)
class BloomFilterEntry:
    """A Bloom filter: path below the index folder, bytes, and the CRC of its head, which holds the CRCs of its
    pages."""

    path: str
    size: int
    crc32: int


@dataclass(frozen=True)
class IndexFileEntry:
    """An index file: path below the index folder, its bucket, entries, bytes, CRC of the whole file, and its Bloom
    filter, if it has one."""

    path: str
    partition: str
    bucket: int
    entries: int
    size: int
    crc32: int
    filter: BloomFilterEntry | None = None


@dataclass(frozen=True)
class PageMapsEntry:
    """The page maps of a source file: a block in a file of the index. It has the file's path below the index folder and
    its bytes, and the block's offset, bytes and CRC."""

    path: str
    size: int
    offset: int
    length: int
    crc32: int


@dataclass(frozen=True)
class SourceFileEntry:
    """A source file in its state when it was indexed. Its fingerprint is size, modification time (nanoseconds) and the
    store's etag (empty where it has none). `digest` is a digest of its own metadata, which a copy keeps. `page_maps`,
    if recorded, have the places of its pages. `ctime_ns` is the ctime of a local file (`FileInfo`), else 0. `ragged`
    counts its rows with fewer or more fields than the header (CSV)."""

    path: str
    partition: str
    rows: int
    size: int
    mtime_ns: int
    digest: str
    etag: str = ""
    page_maps: PageMapsEntry | None = None
    ctime_ns: int = 0
    ragged: int = 0

    @cached_property
    def info(self) -> FileInfo:
        return FileInfo(self.path, self.size, self.mtime_ns, self.etag, self.ctime_ns)


def _record(name: str, kind: type[Any], **nested: Any) -> dict[str, Any]:
    """The Avro record of a dataclass: its fields are text, integers, or `nested`."""
    types: dict[Any, str] = {str: "string", int: "long"}
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": item.name, "type": nested.get(item.name) or types[item.type]} for item in fields(kind)],
    }


_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "SegmentItem",
        "namespace": "gnomon",
        "doc": "one file of a segment: either an index file or a source file",
        "fields": [
            {
                "name": "index_file",
                "type": [
                    "null",
                    # "KeyFilter" is the name of the record on disk, from the first versions; it stays.
                    _record("IndexFile", IndexFileEntry, filter=["null", _record("KeyFilter", BloomFilterEntry)]),
                ],
            },
            {
                "name": "source_file",
                "type": [
                    "null",
                    _record("SourceFile", SourceFileEntry, page_maps=["null", _record("PageMaps", PageMapsEntry)]),
                ],
            },
        ],
    }
)


@dataclass(frozen=True)
class Segment:
    """A segment as a snapshot has it: `dead` holds the ordinals of the source files that are dead in that snapshot,
    `masks` the deleted rows of live ones."""

    id: str
    index_files: tuple[IndexFileEntry, ...]
    source_files: tuple[SourceFileEntry, ...]
    dead: frozenset[int] = field(default=frozenset())
    masks: Masks = field(default_factory=dict, compare=False)

    @cached_property
    def by_bucket(self) -> dict[tuple[str, int], IndexFileEntry]:
        """The index files that may hold a live entry, by partition ("" in a flat index) and bucket."""
        partitions = {file.partition for file in self.live.values()} | ({""} if self.live else set())
        return {(file.partition, file.bucket): file for file in self.index_files if file.partition in partitions}

    @cached_property
    def index_files_in(self) -> dict[str, list[IndexFileEntry]]:
        """The index files that may hold a live entry, by partition ("" in a flat index)."""
        files: dict[str, list[IndexFileEntry]] = {}
        for file in self.by_bucket.values():
            files.setdefault(file.partition, []).append(file)
        return files

    @cached_property
    def source_files_in(self) -> dict[str, list[SourceFileEntry]]:
        """The source files by partition, dead ones included."""
        files: dict[str, list[SourceFileEntry]] = {}
        for file in self.source_files:
            files.setdefault(file.partition, []).append(file)
        return files

    @cached_property
    def live(self) -> dict[str, SourceFileEntry]:
        """The live source files, by path."""
        return {file.path: file for i, file in enumerate(self.source_files) if i not in self.dead}

    @cached_property
    def partition_of(self) -> dict[str, str]:
        """The partition of each source file that entries may name, dead ones included."""
        return {file.path: file.partition for file in self.source_files}


class SegmentFile(NamedTuple):
    """An index file, and the segment that decides which of its entries are live."""

    segment: Segment
    file: IndexFileEntry


def rows_by_partition(segments: Iterable[Segment], masks: Masks) -> dict[str, int]:
    """The number of live rows by partition, ordered. Partitions whose live files have no rows have 0."""
    rows: Counter[str] = Counter()
    for segment in segments:
        for path, file in segment.live.items():
            rows[file.partition] += file.rows - (masks[path].rows if path in masks else 0)
    return dict(sorted(rows.items()))


def masks_of(segments: Iterable[Segment]) -> Masks:
    """The masks of the segments of a snapshot, which all have the same."""
    return next((segment.masks for segment in segments), {})


@dataclass(frozen=True)
class SegmentRef:
    """A segment as a snapshot names it: id, size and CRC of its manifest, dead source files."""

    id: str
    size: int
    crc32: int
    dead: tuple[int, ...] = ()


def manifest_path(segment_id: str) -> str:
    return f"{SEGMENT_FOLDER}/{segment_id}.avro"


def write_segment(storage: Storage, segment: Segment) -> SegmentRef:
    """Write the manifest of a segment. Returns the reference that a snapshot needs."""
    out = io.BytesIO()
    sync = hashlib.blake2b(segment.id.encode(), digest_size=SYNC_BYTES).digest()  # the same bytes when put again
    fastavro.writer(out, _SCHEMA, _records(segment), codec="deflate", sync_marker=sync)
    data = out.getvalue()
    path = manifest_path(segment.id)
    try:
        storage.put_new(path, [data])
    except AlreadyExists:  # this program put it, and the reply was lost
        if storage.read(path) != data:
            raise
    return SegmentRef(segment.id, len(data), zlib.crc32(data))


def read_segment(storage: Storage, ref: SegmentRef) -> Segment:
    """The segment of a manifest. DamagedMetadata when the manifest is missing or has another size or CRC."""
    path = manifest_path(ref.id)
    where = f"{storage.root}/{path}"
    data = read_named(storage, path, ref.size, ref.crc32)
    index_files: list[IndexFileEntry] = []
    source_files: list[SourceFileEntry] = []
    try:
        for item in cast(Iterable[dict[str, Any]], fastavro.reader(io.BytesIO(data))):
            if (record := item["index_file"]) is not None:
                index_files.append(_index_file(record))
            elif (record := item["source_file"]) is not None:
                source_files.append(_source_file(record))
    except _UNREADABLE as error:
        raise DamagedMetadata(
            f"not the manifest of a segment ({error!r})", where, 0, action=Action.BUILD_FULL
        ) from None
    return Segment(ref.id, tuple(index_files), tuple(source_files), frozenset(ref.dead))


# The fields of each kind of entry: `dataclasses.fields` takes longer than the rest of the work on an entry.
_NAMES = {
    kind: tuple(one.name for one in fields(kind))
    for kind in (BloomFilterEntry, IndexFileEntry, PageMapsEntry, SourceFileEntry)
}


def _records(segment: Segment) -> Iterator[dict[str, Any]]:
    """The records of a manifest, one at a time: a segment may have 100,000 files."""
    for index_file in segment.index_files:
        found = index_file.filter
        yield {"index_file": {**_fields_of(index_file), "filter": found and _fields_of(found)}, "source_file": None}
    for source_file in segment.source_files:
        maps = source_file.page_maps
        yield {"index_file": None, "source_file": {**_fields_of(source_file), "page_maps": maps and _fields_of(maps)}}


def _fields_of(entry: Any) -> dict[str, Any]:
    """The fields of an entry. Entries within it stay objects."""
    return {name: getattr(entry, name) for name in _NAMES[type(entry)]}


def _index_file(record: dict[str, Any]) -> IndexFileEntry:
    found = record["filter"]
    return IndexFileEntry(
        record["path"],
        sys.intern(record["partition"]),
        record["bucket"],
        record["entries"],
        record["size"],
        record["crc32"],
        found and BloomFilterEntry(found["path"], found["size"], found["crc32"]),
    )


def _source_file(record: dict[str, Any]) -> SourceFileEntry:
    found = record.get("page_maps")  # the first versions wrote manifests without this field, ctime_ns and ragged
    return SourceFileEntry(
        record["path"],
        sys.intern(record["partition"]),
        record["rows"],
        record["size"],
        record["mtime_ns"],
        record["digest"],
        record["etag"],
        found and PageMapsEntry(found["path"], found["size"], found["offset"], found["length"], found["crc32"]),
        record.get("ctime_ns", 0),
        record.get("ragged", 0),
    )
