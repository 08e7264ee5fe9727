"""Dione's bucket of a key: MurmurHash3's `orderedHash` of Scala 2.12 over the texts of the key columns, each hashed by
Java's `String.hashCode`. All arithmetic is modulo 2^32."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gnomon.btree.errors import BTreeError
from gnomon.btree.schema import Column

# Dione's writer hashes the text that Spark makes of a value; its reader hashes the text that Java makes. The two texts
# are equal only for these types.
HASHED_TYPES = ("string", "boolean", "tinyint", "smallint", "int", "bigint")
SEED = 0xB592F7AE  # of `orderedHash`: its constant "symmetricSeed"
CODE_FACTOR = 31  # of `String.hashCode`
ASCII_END, FOUR_BYTES = 0x80, 0xF0  # UTF-8: the first byte that is not ASCII; the first of four bytes

Hashes = npt.NDArray[np.uint32]


def check_hashed(keys: Sequence[Column]) -> None:
    """Raise BTreeError for a key column of a type whose keys Dione's reader does not find."""
    for column in keys:
        if column.type not in HASHED_TYPES:
            raise BTreeError("Dione's reader does not find keys of this type", column=column.name, found=column.type)
        if column.type == "boolean" and len(keys) > 1:
            raise BTreeError("Dione has no composite keys with this type", column=column.name, found=column.type)


def dione_hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Dione's hash of each row of key columns of HASHED_TYPES. The bucket of a row is the hash modulo the number of
    buckets."""
    hashes = np.full(len(keys[0]), SEED, np.uint32)
    for key in keys:
        hashes = _mixed(hashes, _java_hashes(key))
    return _finished(hashes, len(keys)).view(np.int32).astype(np.int64)


def _mixed(hashes: Hashes, data: Hashes) -> Hashes:
    data = _rotated(data * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ data, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashes: Hashes, columns: int) -> Hashes:
    hashes = hashes ^ np.uint32(columns)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _java_hashes(key: pa.Array) -> Hashes:
    """`String.hashCode` of the text of each value; 0 for a null. The code units of a text are weighted with powers of
    CODE_FACTOR, the last one with 1."""
    texts = key.cast(pa.large_string()) if not pa.types.is_large_string(key.type) else key
    texts = pc.fill_null(texts, "")
    if len(texts) == 0:
        return np.empty(0, np.uint32)
    first = texts.offset
    ends = np.frombuffer(texts.buffers()[1], np.int64)[first : first + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    units, ends = _code_units(data, ends - ends[0])
    if not len(units):
        return np.zeros(len(texts), np.uint32)
    lengths = np.diff(ends)
    powers = np.cumprod(np.full(int(lengths.max()), CODE_FACTOR, np.uint32), dtype=np.uint32)
    powers = np.concatenate([np.ones(1, np.uint32), powers])
    weighted = units.astype(np.uint32) * powers[np.repeat(ends[1:], lengths) - 1 - np.arange(len(units))]
    sums = np.concatenate([np.zeros(1, np.uint32), np.cumsum(weighted, dtype=np.uint32)])
    hashes: Hashes = sums[ends[1:]] - sums[ends[:-1]]
    return hashes


def _code_units(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16] | npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The UTF-16 code units of UTF-8 texts, and where each text begins and ends among them."""
    if not len(data) or data.max() < ASCII_END:
        return data, ends
    units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), np.uint16)
    is_first = (data & 0xC0) != ASCII_END  # not a continuation byte
    before = np.concatenate([[0], np.cumsum(is_first.astype(np.int64) + (data >= FOUR_BYTES))])
    return units, before[ends]
