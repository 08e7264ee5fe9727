"""What can go wrong with an index file or a key. Each message says what, where, expected and found."""


class BTreeError(Exception):
    """Base of all errors of this package."""


class DamagedIndexFile(BTreeError):
    """The bytes at `offset` of the index file `path` are not what the format says they must be. `cure` says what to
    do."""

    def __init__(self, message: str, path: str, offset: int, cure: str = "rebuild the index from its source") -> None:
        self.path = path
        self.offset = offset
        super().__init__(f"{path} at byte {offset}: {message}; {cure}")


class TooMany(Exception):
    """More entries than the caller holds at once, in the node at `offset` or before it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(offset)


class UnsortedKeys(BTreeError):
    """The rows handed to a writer are not in key order."""


class KeyTypeError(BTreeError):
    """A key value cannot be read as the type of its column."""

    def __init__(self, column: str, expected: str, found: object, hint: str = "") -> None:
        self.column = column
        self.expected = expected
        shown = repr(found)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"key column {column}: expected {expected}{hint}, found {shown}")
