"""The base of all errors: an error has fields, and composes its text from them.

Pickle, `copy` and JSON keep an error's type, text, fields and the attributes of its class. So a process pool, Spark or
a log can pass it on."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Self

from gnomon.base.actions import Action

MOST_SHOWN = 80  # characters of a found value
_LINE_ENDS = re.compile(r"\s*[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")  # as `str.splitlines` finds them
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# pyarrow has classes for memory errors. The libraries it calls report them as text.
NO_MEMORY = re.compile(
    r"malloc of size|not enough memory|out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE
)


def shown(value: object) -> str:
    """A value as messages show it: on one line of at most 80 characters. A text is shown unquoted, another value as its
    `repr`."""
    text = value if isinstance(value, str) else repr(value)
    text = _LINE_ENDS.sub(" ", text)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


class GnomonError(Exception):
    """Base of all errors of this product.

    `what` says what is wrong. `path` names the file or folder, `offset` the byte in it, `column` the column. `expected`
    and `found` are texts, `action` is the advice. All but `what` may be None. `str` composes them to

        {path} at byte {offset}: column {column}: {what}: expected {expected}, found {found}; {action}

    and omits each field that is None."""

    COLUMN_LABEL: ClassVar[str] = "column"

    def __init__(
        self,
        what: str,
        path: str | None = None,
        offset: int | None = None,
        *,
        column: str | None = None,
        expected: object = None,
        found: object = None,
        action: Action | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.offset = None if offset is None else int(offset)
        self.column = column
        self.expected = None if expected is None else str(expected)
        self.found = None if found is None else shown(found)
        self.action = action

    def __str__(self) -> str:
        return composed(self.place, self.fault, self.advice)

    @property
    def place(self) -> str:
        """Path and byte offset, or an empty text."""
        if self.offset is None:
            return self.path or ""
        return f"{self.path} at byte {self.offset}" if self.path else f"byte {self.offset}"

    @property
    def fault(self) -> str:
        """The fault, its column, and the expected and found values: the text without place and advice."""
        text = f"{self.COLUMN_LABEL} {self.column}" if self.column is not None else ""
        text = ": ".join(part for part in (text, self.what) if part)
        wanted = "" if self.expected is None else f"expected {self.expected}"
        if self.found is None:
            return "; ".join(part for part in (text, wanted) if part)
        return ": ".join(part for part in (text, ", ".join(filter(None, (wanted, f"found {self.found}")))) if part)

    @property
    def advice(self) -> str:
        """What to do, or an empty text."""
        return "" if self.action is None else str(self.action)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.args), self.__dict__

    def to_json(self) -> dict[str, Any]:
        """The error as JSON values: the names of its class and base classes, its fields, and the attributes of its
        class that are JSON values."""
        known = {name: value for name, value in self.__dict__.items() if name != "__notes__" and _is_json(value)}
        names = [kind.__name__ for kind in type(self).__mro__ if issubclass(kind, GnomonError)]
        return {"types": names, **known, "action": None if self.action is None else self.action.name}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GnomonError":
        """The error that `to_json` described. Its class is the first in `types` that this process has loaded."""
        members = dict(content)
        kinds = _subclasses(GnomonError)
        kind = next((kinds[name] for name in members.pop("types") if name in kinds), GnomonError)
        action = members["action"]
        members["action"] = Action[action] if action in Action.__members__ else None
        error = _made(kind, (members["what"],))
        error.__dict__.update(members)
        return error

    def with_fields(self, **fields: Any) -> Self:
        """A copy with other values of some fields, and with the same cause and traceback."""
        made = _made(type(self), (fields.get("what", self.what),))
        made.__dict__.update(self.__dict__ | fields)
        made.__cause__, made.__suppress_context__ = self.__cause__, self.__suppress_context__
        return made.with_traceback(self.__traceback__)  # type: ignore[return-value]


def check_memory(error: Exception) -> None:
    """Raise MemoryError if `error`, which a decoder or an encoder raised, says that memory ran out.

    Each handler that turns errors of pyarrow (whose ArrowMemoryError is an ArrowException) or of a codec into an error
    about the file calls this first."""
    if isinstance(error, MemoryError):
        raise error
    if not isinstance(error, ValueError) and NO_MEMORY.search(str(error)):  # a ValueError may quote the data
        raise MemoryError(str(error)) from error


def composed(place: str, fault: str, advice: str) -> str:
    """The text of an error, from its parts, on one line: control characters of the place are escaped, so that it still
    names the file, and line ends elsewhere become spaces."""
    place = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], place)
    text = ": ".join(part for part in (place, fault) if part)
    return _LINE_ENDS.sub(" ", "; ".join(part for part in (text, advice) if part))


def _made(kind: type[GnomonError], args: tuple[Any, ...]) -> GnomonError:
    """An error made without its `__init__`, which may take any arguments. The caller sets the attributes afterwards."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _subclasses(kind: type[GnomonError]) -> dict[str, type[GnomonError]]:
    """A class and all its subclasses, by name."""
    found = {kind.__name__: kind}
    for below in kind.__subclasses__():
        found |= _subclasses(below)
    return found


def _is_json(value: object) -> bool:
    if isinstance(value, Enum):
        return False
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)
