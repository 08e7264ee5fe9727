"""The dictionary page of a chunk: its values by their indices, and its map."""

import threading
from collections.abc import Sequence

from gnomon.base import kernel
from gnomon.sources.errors import DamagedSource
from gnomon.sources.parquet.footer import ChunkPlace
from gnomon.sources.parquet.page_decode.decompress import Unpacked, decompress_page
from gnomon.sources.parquet.page_decode.pieces import pieces_of
from gnomon.sources.parquet.page_decode.plain_values import (
    LENGTH_BYTES,
    ByteArrayValues,
    FixedWidthValues,
    NeedsPyarrow,
    decoding,
)
from gnomon.sources.parquet.page_decode.value_map import ValueMap
from gnomon.sources.parquet.page_header import PageHeader
from gnomon.sources.parquet.schema import BINARY, Leaf


class Dictionary:
    """A dictionary page that was read whole. It is decompressed at the first use. Safe to share between threads."""

    def __init__(self, page: bytes, header: PageHeader, place: ChunkPlace, offset: int, leaf: Leaf) -> None:
        """`header` is the page's, already checked."""
        self.cache_bytes = 1000 + len(page) + header.uncompressed + LENGTH_BYTES * max(header.values, 0)
        self.count = max(header.values, 0)
        self._page = page
        self._header = header
        self._place = place
        self._offset = offset
        self._leaf = leaf
        self._values: FixedWidthValues | ByteArrayValues | None = None
        self._lock = threading.Lock()

    def at(self, indices: Sequence[int]) -> bytes:
        """The values with these indices, concatenated. Each index is less than `count`."""
        with decoding(self._place, self._offset):
            with self._lock:
                if self._values is None:
                    self._values = self._values_of(self._unpacked())
                    self._page = b""
            return self._values.at(indices)

    def value_map(self) -> ValueMap | None:
        """The map of the page, if its values were not used yet; None where it cannot have one. Entry i is value i."""
        if not kernel.COMPILED:
            return None
        with self._lock:
            if self._values is not None:
                return None
            try:
                with decoding(self._place, self._offset):
                    unpacked = self._unpacked()
                    made = self._map(unpacked)
                    self._values = self._values_of(unpacked)
            except (NeedsPyarrow, DamagedSource):
                return None  # reported where a value is used
            self._page = b""
            return made

    def _unpacked(self) -> Unpacked:
        return decompress_page(self._page, self._header, self._place, self._offset)[1]

    def _values_of(self, unpacked: Unpacked) -> FixedWidthValues | ByteArrayValues:
        if self._leaf.kind == BINARY:
            return ByteArrayValues(unpacked.content, self.count)
        if not self._leaf.width:
            raise NeedsPyarrow
        return FixedWidthValues(unpacked.content, self._leaf.width)

    def _map(self, unpacked: Unpacked) -> ValueMap | None:
        content, body, starts = unpacked.content, unpacked.body, unpacked.starts
        size, width, marks = len(content), self._leaf.width, b""
        if self._leaf.kind == BINARY:
            width, found = 0, kernel.byte_array_marks(content, 0, self.count)
            if found is None:
                return None
            marks = found
        elif not width or self.count * width > size:
            return None
        return ValueMap(pieces_of(self._page, body, size, starts), None, self.count, 0, size, width, marks)
