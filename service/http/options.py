"""The options of a query: how rows are fetched. OPTIONS is the one table of them. A query holds key columns, too, so
the name of an option begins with an underscore: `/rows?country=de&_limit=10`."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from gnomon.service.errors import BadRequest

PREFIX = "_"
MOST_PARAMETERS = 1000
MOST_NUMBER = 10**18 - 1  # of limit and snapshot
SHOWN_CHARACTERS = 100  # of what was found in a request, in the text of an error
_NUMBER = re.compile(r"[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}
_WHOLE_NUMBER = {"type": "integer", "minimum": 0, "maximum": MOST_NUMBER}


class Option(NamedTuple):
    """An option: its name in a query, and its members in `/openapi.json`. Through version 0.2 its `old_name`, if it has
    one, is accepted, unless a key column has that name. A new option has none."""

    name: str
    description: str
    schema: Mapping[str, Any]
    style: Mapping[str, Any] = {}
    old_name: str = ""

    @property
    def is_list(self) -> bool:
        """Whether a query may give the option several times."""
        return bool(self.schema["type"] == "array")


OPTIONS = (
    Option(
        "_columns",
        "The columns of the rows, with commas between them; all when left out.",
        {"type": "array", "items": {"type": "string", "minLength": 1, "pattern": "^[^,]+$"}, "minItems": 1},
        {"style": "form", "explode": False},
        old_name="columns",
    ),
    Option(
        "_where",
        "A partition column and its value, like `_where=dt=2026-01-01`. Repeatable: several values of one column mean "
        "any of them. A value that no partition has is 400.",
        {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
        {"style": "form", "explode": True},
        old_name="where",
    ),
    Option("_limit", "The most rows of a key; `count` is of all.", _WHOLE_NUMBER, old_name="limit"),
    Option("_snapshot", "The snapshot to ask, instead of the newest.", _WHOLE_NUMBER, old_name="snapshot"),
    Option("_explain", "Whether to say what the answer cost.", {"type": "boolean"}, old_name="explain"),
)
NAMES = tuple(option.name for option in OPTIONS)
_BY_OLD_NAME = {option.old_name: option.name for option in OPTIONS if option.old_name}
_SINGLE = [option.name for option in OPTIONS if not option.is_list]


@dataclass(frozen=True)
class Options:
    """The options of a query, apart from its key."""

    columns: list[str] | None = None
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    limit: int | None = None
    snapshot: int | None = None
    explain: bool = False


class _Given(NamedTuple):
    """A value of an option, and the name under which it was given."""

    name: str
    value: str


def query_options(
    scope: Mapping[str, Any], key_columns: Callable[[], Collection[str]] = tuple
) -> tuple[Options, dict[str, str]]:
    """The options of a query, and its other parameters: column to value.

    `key_columns` gives the key columns that the query may hold: a parameter of that name is the column's value, even if
    it is also the old name of an option. It is called only for a query with such a parameter. BadRequest for a query
    that cannot be read."""
    if not scope["query_string"]:
        return Options(), {}
    options: dict[str, list[_Given]] = {}
    others: dict[str, str] = {}
    for name, value in _pairs(scope["query_string"]):
        option = name if name in NAMES else _BY_OLD_NAME.get(name)
        if option is not None and option != name and name in key_columns():
            option = None
        if option is not None:
            options.setdefault(option, []).append(_Given(name, value))
        elif name in others:
            raise BadRequest(f"{cut(name)} is given twice; a key column has one value")
        else:
            others[name] = value
    return _options(options), others


def no_others(others: Mapping[str, str]) -> None:
    """BadRequest for parameters that are not options."""
    if others:
        raise BadRequest(f"unknown parameter {cut(', '.join(others))}; there are {', '.join(NAMES)}")


def cut(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """What was found in a request, as the text of an error shows it."""
    return text if len(text) <= most else f"{text[:most]}..."


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except UnicodeDecodeError:
        raise BadRequest("the query is not UTF-8 when percent-decoded") from None
    except ValueError:
        raise BadRequest(f"more than {MOST_PARAMETERS} parameters") from None


def _options(given: Mapping[str, list[_Given]]) -> Options:
    for name in _SINGLE:
        if len(given.get(name, ())) > 1:
            raise BadRequest(f"{given[name][-1].name} is given twice")
    return Options(
        columns=_columns(given.get("_columns")),
        where=_where(given.get("_where", ())),
        limit=_number(given.get("_limit")),
        snapshot=_number(given.get("_snapshot")),
        explain=_flag(given.get("_explain")),
    )


def _columns(given: list[_Given] | None) -> list[str] | None:
    if given is None:
        return None
    columns = [column for one in given for column in one.value.split(",")]
    if "" in columns:
        name = given[0].name
        raise BadRequest(f"{name}: expected column names with commas between them, like {name}=a,b")
    return columns


def _where(given: Sequence[_Given]) -> dict[str, list[str]]:
    where: dict[str, list[str]] = {}
    for name, text in given:
        column, equals, value = text.partition("=")
        if not equals:
            raise BadRequest(f"{name}: expected a partition column with a value, like dt=2026-01-01; found {cut(text)}")
        where.setdefault(column, []).append(value)
    return where


def _number(given: list[_Given] | None) -> int | None:
    if given is None:
        return None
    [(name, text)] = given
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f"{name}: expected a whole number from 0 to {MOST_NUMBER}, found {cut(text)}")
    return int(text)


def _flag(given: list[_Given] | None) -> bool:
    if given is None:
        return False
    [(name, text)] = given
    if text not in _FLAGS:
        raise BadRequest(f"{name}: expected true or false, found {cut(text)}")
    return _FLAGS[text]
