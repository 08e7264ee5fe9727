"""Single numbers of the RLE / bit-packing hybrid (parquet-format, Encodings), without decoding the others."""

from collections.abc import Sequence

import numpy as np

from gnomon.base import kernel
from gnomon.sources.parquet.synthetic_file import decode_hybrid
from gnomon.sources.parquet.thrift import ThriftError

RUNS = 64  # runs that a loop of Python decodes; for a page of more, pyarrow is faster
COMPILED_RUNS = 1 << 30
WIDTH_LIMIT = 32  # bits


def values_at(data: memoryview, width: int, positions: Sequence[int], limit: int) -> list[int]:
    """The numbers at ascending `positions`. ValueError where the bytes end before them, or for a number that is not
    below `limit`; ArrowException where pyarrow finds such an error."""
    if not positions:
        return []
    found = kernel.hybrid_values(data, width, positions, COMPILED_RUNS if kernel.COMPILED else RUNS)
    if found is None:
        found = decode_hybrid(data, width, positions[-1] + 1, limit)[np.array(positions)].tolist()
    if max(found) >= limit:
        raise ThriftError(f"index {max(found)} where there are {limit}")
    return found


def flags_at(data: memoryview, positions: Sequence[int]) -> list[tuple[bool, int]]:
    """For numbers of one bit, at each of ascending `positions`: whether it is 1, and the number of ones before it."""
    if not positions:
        return []
    found = kernel.hybrid_flags(data, positions, COMPILED_RUNS if kernel.COMPILED else RUNS)
    if found is None:
        flags = decode_hybrid(data, 1, positions[-1] + 1, 2)
        found = [(bool(flags[p]), int(np.count_nonzero(flags[:p]))) for p in positions]
    return found
