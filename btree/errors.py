"""Errors of an index file or a key. Each message says what is wrong, where, expected and found."""

from gnomon.base.errors import Action, GnomonError


class BTreeError(GnomonError):
    """Base of all errors of this package."""


class DamagedIndexFile(BTreeError):
    """The bytes at `offset` of the index file `path` violate the format."""

    path: str
    offset: int

    def __init__(
        self,
        what: str,
        path: str,
        offset: int,
        *,
        column: str | None = None,
        expected: object = None,
        found: object = None,
        action: Action | None = Action.BUILD_FULL,
    ) -> None:
        super().__init__(what, path, offset, column=column, expected=expected, found=found, action=action)


class Irregular(DamagedIndexFile):
    """The tree at `offset` has a shape that Gnomon's writer does not make. A Dione file is then read node by node."""


class TooMany(Exception):
    """A look-up reached more entries than the caller allows, in the node at `offset` or before it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(offset)


class UnsortedKeys(BTreeError):
    """The rows given to a writer are not in key order."""


class KeyTypeError(BTreeError):
    """A key value cannot be read as the type of its column. `hint` follows the expected type."""

    COLUMN_LABEL = "key column"
    column: str
    expected: str

    def __init__(self, column: str, expected: str, found: object, hint: str = "") -> None:
        super().__init__("", column=column, expected=expected, found=repr(found))
        self.hint = hint

    @property
    def fault(self) -> str:
        return f"{self.COLUMN_LABEL} {self.column}: expected {self.expected}{self.hint}, found {self.found}"
