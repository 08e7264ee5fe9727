"""Masks: the rows that a lake table has deleted in its live files. Their entries stay in the index, and no reader
answers them.

A masks file, `_shadow/masks/<id>.avro`, has one record for each source file with deleted rows: its path, their number,
and the offsets of their pointers, as a 64-bit Roaring bitmap in the portable form
(https://github.com/RoaringBitmap/RoaringFormatSpec). It never changes. A snapshot names it with its size and CRC."""

import io
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import numpy as np
import numpy.typing as npt
from fastavro.schema import SchemaParseException

from gnomon.base.errors import Action
from gnomon.base.later import Later
from gnomon.shadow.errors import AlreadyExists, DamagedMetadata
from gnomon.shadow.metadata.immutable_files import read_named
from gnomon.shadow.storage import Storage

if TYPE_CHECKING:
    import pyroaring
else:  # of an index with masks alone
    pyroaring = Later("pyroaring")

MASKS_FOLDER = "_shadow/masks"
_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Mask",
        "namespace": "gnomon",
        "doc": "the deleted rows of one source file",
        "fields": [
            {"name": "path", "type": "string"},
            {"name": "rows", "type": "long", "doc": "how many rows are deleted"},
            {"name": "bitmap", "type": "bytes", "doc": "their numbers: a 64-bit Roaring bitmap, portable form"},
        ],
    }
)
_UNREADABLE = (ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, SchemaParseException)

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Mask:
    """The deleted rows of one source file, decoded on first use. Threads may share it."""

    def __init__(self, rows: int, bitmap: bytes) -> None:
        """`rows` is the number of deleted rows."""
        self.rows = rows
        self.bitmap = bitmap

    @classmethod
    def of(cls, numbers: "pyroaring.BitMap64") -> "Mask":
        return cls(len(numbers), numbers.serialize())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self.bitmap == other.bitmap

    def __hash__(self) -> int:
        return hash(self.bitmap)

    @cached_property
    def _numbers(self) -> "pyroaring.BitMap64":
        return pyroaring.BitMap64.deserialize(self.bitmap)

    @cached_property
    def numbers(self) -> Numbers:
        """The numbers of the deleted rows, ascending."""
        return np.array(self._numbers.to_array(), np.int64)

    def holds(self, row: int) -> bool:
        """Whether a row is deleted."""
        return row in self._numbers

    def holds_each(self, rows: Numbers) -> Flags:
        """n flags: whether each of n rows is deleted."""
        numbers = self.numbers
        places = np.searchsorted(numbers, rows)
        places[places == len(numbers)] = 0
        found: Flags = numbers[places] == rows
        return found

    def check(self, where: str, rows_of_file: int, end: int) -> None:
        """Raise DamagedMetadata unless the bitmap has the stated number of rows, no more than the file, and all below
        `end`."""
        numbers = self._numbers
        if not 0 < len(numbers) == self.rows <= rows_of_file or numbers.max() >= end:
            raise DamagedMetadata(
                "its deleted rows are not rows of the file",
                where,
                action=Action.BUILD_FULL,
                expected=f"{self.rows} of {rows_of_file} rows, numbered below {end}",
                found=f"{len(numbers)} rows, the last is {numbers.max() if numbers else 'none'}",
            )


Masks = Mapping[str, Mask]  # by the path of the source file
NO_MASKS: Masks = {}


class MasksRef(NamedTuple):
    """A masks file as a snapshot names it: its id, its bytes and their CRC, and the deleted rows in it."""

    id: str
    size: int
    crc32: int
    rows: int


def masks_path(masks_id: str) -> str:
    return f"{MASKS_FOLDER}/{masks_id}.avro"


def write_masks(storage: Storage, masks_id: str, masks: Masks) -> MasksRef | None:
    """Write the masks of a snapshot. Returns the reference for the snapshot; None where no row is masked."""
    if not masks:
        return None
    out = io.BytesIO()
    items = ({"path": path, "rows": mask.rows, "bitmap": mask.bitmap} for path, mask in sorted(masks.items()))
    sync = zlib.crc32(masks_id.encode()).to_bytes(16, "big")  # the same bytes when put again
    fastavro.writer(out, _SCHEMA, items, codec="deflate", sync_marker=sync)
    data, path = out.getvalue(), masks_path(masks_id)
    try:
        storage.put_new(path, [data])
    except AlreadyExists:  # this program put it, and the reply was lost
        if storage.read(path) != data:
            raise
    return MasksRef(masks_id, len(data), zlib.crc32(data), sum(mask.rows for mask in masks.values()))


def read_masks(storage: Storage, ref: MasksRef | None) -> Masks:
    """The masks of a snapshot. DamagedMetadata where the file is missing or has another size or CRC."""
    if ref is None:
        return NO_MASKS
    path = masks_path(ref.id)
    where = f"{storage.root}/{path}"
    data = read_named(storage, path, ref.size, ref.crc32)
    try:
        records: Iterator[dict[str, Any]] = iter(list(fastavro.reader(io.BytesIO(data))))
        return {record["path"]: Mask(record["rows"], record["bitmap"]) for record in records}
    except _UNREADABLE as error:
        raise DamagedMetadata(f"not a masks file ({error!r})", where, 0, action=Action.BUILD_FULL) from None
