"""Reads the rows at pointers from files of compressed blocks. Each block is read and decompressed once.

The length of a block follows from the lengths of its buffers, one after another. The first round reads an estimated
length of each block; further rounds, nearly always one, read the rest of longer blocks.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.base.readers import RangeReader
from gnomon.sources.errors import StalePointer
from gnomon.sources.sequence.blocks import KEY_LENGTHS, VALUE_LENGTHS, Block, Need, lengths_of, measure, read_cells
from gnomon.sources.sequence.record_fetch import TOGETHER, stale
from gnomon.sources.sequence.row_layout import RowLayout
from gnomon.sources.sequence.varints import Longs


def fetch_blocks(
    reader: RangeReader, layout: RowLayout, columns: Sequence[str], offsets: Longs, ordinals: Longs, guess: int
) -> Iterator[tuple[Longs, list[pa.Array], int]]:
    """`(ordinals of pointers, their columns, bytes of the block)`, each pointer once. Pointers ascend and are
    distinct."""
    path, size = reader.name, reader.size
    first = np.flatnonzero(np.append(True, offsets[1:] > offsets[:-1]))
    ends = np.append(first[1:], len(offsets))
    positions = offsets[first]
    wrong = np.flatnonzero((positions < layout.header.end) | (positions > size - len(layout.header.marker)))
    if len(wrong):
        raise stale("the position is outside the file's blocks", path, positions[wrong[0]])
    room = np.append(positions[1:], size) - positions  # bytes up to the next wanted block
    for ordinal, block, data in _blocks(reader, layout, positions.tolist(), np.minimum(room, guess).tolist(), guess):
        rows = np.arange(first[ordinal], ends[ordinal], dtype=np.int64)
        wanted, position = ordinals[rows], int(positions[ordinal])
        if wanted[0] < 0 or wanted[-1] >= block.rows:
            message = f"no row {wanted[0] if wanted[0] < 0 else wanted[-1]} in a block of {block.rows}"
            raise StalePointer(message, path, position, action=Action.BUILD_AGAIN)
        keys = values = None
        if layout.wants_key(columns):
            keys = read_cells(block, data, KEY_LENGTHS, position, layout, path).part(wanted)
        else:
            lengths_of(block, data, KEY_LENGTHS, position, layout, path)
        if layout.wants_value(columns):
            values = read_cells(block, data, VALUE_LENGTHS, position, layout, path).part(wanted)
        yield rows, layout.arrays(columns, keys, values, path, offsets[rows]), block.length


def _blocks(
    reader: RangeReader, layout: RowLayout, positions: list[int], lengths: list[int], guess: int
) -> Iterator[tuple[int, Block, bytes]]:
    """`(ordinal, block, its bytes)`, in the order in which blocks are complete. The first read of each has its bytes in
    `lengths`."""
    path, size = reader.name, reader.size
    wanted = list(enumerate(lengths))  # ordinal of a block, and the length of its bytes to hold
    held: dict[int, bytes] = {}
    while wanted:
        share, total = 0, 0
        while share < len(wanted) and (not share or total + wanted[share][1] <= TOGETHER):
            total += wanted[share][1]
            share += 1
        now, wanted = wanted[:share], wanted[share:]
        kept = [held.pop(ordinal, b"") for ordinal, _ in now]
        ranges = [(positions[i] + len(have), length - len(have)) for (i, length), have in zip(now, kept, strict=True)]
        longer = []
        for (ordinal, _), have, more in zip(now, kept, reader.read_ranges(ranges), strict=True):
            data, position = have + more, positions[ordinal]
            if not have and not data.startswith(layout.header.marker):
                raise stale("no block begins at this position", path, position)
            block = measure(data, 0, position, layout, path, size)
            if isinstance(block, Block):
                yield ordinal, block, data
                continue
            held[ordinal] = data
            longer.append((ordinal, _next_read(block, position, size, guess)))
        wanted = longer + wanted


def _next_read(need: Need, position: int, size: int, guess: int) -> int:
    """The length to hold of an incomplete block: the whole block where its length is known."""
    return need.length if need.whole else min(need.length + guess, size - position)
