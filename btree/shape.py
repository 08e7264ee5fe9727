"""The shape of a tree: sizes of nodes, and when one is full. Arithmetic only.

The tree grows as entries come, so its shape follows from their bytes alone: no estimate, and the same entries make
the same tree however they were cut into batches. Levels are counted from the leaves up; the top level is the root.

A cold look-up reads all upper levels and one leaf. While the former are short, leaves are, too; then leaves grow in
proportion to them, so that both are about the square root of the file: n entries have at most 16 * sqrt(n) leaves.
"""

from math import isqrt

NODE_BYTES = 8 * 1024  # target bytes of records in a node, before compression
LEAST_RECORDS = 8  # in a full inner node, however long its records are; with one the tree would be a list
MOST_LEAST_RECORDS = 64  # the same, for nodes of NODE_BYTES
LONG_INNER_BYTES = 16 * 1024 * 1024  # an inner node of so many is full with fewer records
MAX_HEIGHT = 8  # levels; the root of so high a tree takes what is left
GROWING_BYTES = 1024 * 1024  # of records above the leaves, from which on leaves are longer than NODE_BYTES
ENTRY_GUESS_BYTES = 48  # of an entry above the leaves, packed; those in leaves are shorter
UPPER_SHARE_GUESS = 48  # one part in so many of a file lies above the leaves, while these are NODE_BYTES long


def leaf_target(upper_bytes: int, node_bytes: int = NODE_BYTES) -> int:
    """Target bytes of the next leaf, when the levels above hold so many."""
    return max(node_bytes, node_bytes * upper_bytes // GROWING_BYTES)


def is_full(records: int, size: int, node_bytes: int = NODE_BYTES) -> bool:
    """Whether an inner node of so many records and bytes takes no more."""
    least = max(LEAST_RECORDS, min(MOST_LEAST_RECORDS, MOST_LEAST_RECORDS * node_bytes // NODE_BYTES))
    return (size >= node_bytes and records >= least) or (size >= LONG_INNER_BYTES and records > 1)


def head_guess(file_bytes: int) -> int:
    """How many bytes of a file to read first, to have its header and upper levels at once in most files."""
    square = 2 * ENTRY_GUESS_BYTES * (GROWING_BYTES // NODE_BYTES) * file_bytes
    return min(file_bytes // UPPER_SHARE_GUESS, isqrt(square))
