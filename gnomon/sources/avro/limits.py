"""The number of elements that a batch of rows may hold. A byte count does not limit it: a null, or a record of nulls,
takes no bytes.
"""

from gnomon.base.varints import decode_unsigned
from gnomon.sources.avro.errors import LimitExceeded, Malformed

MOST_CELLS = 1 << 25  # elements of arrays and maps, times the columns in each; a list takes about 40 bytes for one


class Budget:
    def __init__(self) -> None:
        self._left = MOST_CELLS

    def spend(self, cells: int) -> None:
        self._left -= cells
        if self._left < 0:
            raise LimitExceeded(f"more than {MOST_CELLS} elements of arrays and maps at once")

    def run(self, data: bytes, position: int, value: int, least: int, cells: int, jump: bool) -> tuple[int, int]:
        """The number of elements in a run and the position of the first one.

        `value` is the run's count, not 0, in zigzag form. After a negative count follows the run's length in bytes:
        with `jump` the run is skipped, and the number is 0. An element has at least `least` bytes and makes `cells`
        cells."""
        count = (value >> 1) + (value & 1)
        if value & 1:
            size, position = decode_unsigned(data, position)
            if size & 1 or size >> 1 > len(data) - position:
                raise Malformed("a run of elements longer than the records")
            if jump:
                return 0, position + (size >> 1)
        if count * least > len(data) - position:
            raise Malformed(f"{count} elements where {len(data) - position} bytes are left")
        self.spend(count * cells)
        return count, position


def read_length(data: bytes, position: int) -> tuple[int, int]:
    """The length of a string or of bytes in zigzag order, and the position after it.

    Raises Malformed for a length below 0 or beyond the data."""
    value, position = decode_unsigned(data, position)
    if value & 1:
        raise Malformed("a length below 0")
    if value >> 1 > len(data) - position:
        raise Malformed(f"a length of {value >> 1} bytes where {len(data) - position} are left")
    return value, position
