"""The shape of a tree: sizes of nodes, and when one is full. Arithmetic only.

The tree grows as entries come, so its shape follows from their bytes alone: no estimate, and the same entries make
the same tree however they were cut into batches. Levels are counted from the leaves up; the top level is the root.
"""

NODE_BYTES = 8 * 1024  # target bytes of records in a node, before compression
LEAST_RECORDS = 8  # in a full inner node, however long its records are; with one the tree would be a list
MAX_HEIGHT = 8  # levels; the root of so high a tree takes what is left


def is_full(records: int, size: int, node_bytes: int = NODE_BYTES) -> bool:
    """Whether an inner node of so many records and bytes takes no more."""
    return size >= node_bytes and records >= LEAST_RECORDS
