"""The options of a query: how rows are fetched. OPTIONS is the one table of them. A query holds key columns, too, so
the name of an option begins with an underscore: `/rows?country=de&_limit=10`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from gnomon.service.errors import BadRequest

MOST_PARAMETERS = 1000
MOST_NUMBER = 10**18 - 1  # of limit and snapshot
SHOWN_CHARACTERS = 100  # of what was found in a request, in the text of an error
_NUMBER = re.compile(r"[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}
_WHOLE_NUMBER = {"type": "integer", "minimum": 0, "maximum": MOST_NUMBER}


class Option(NamedTuple):
    """An option: its name in a query, and its members in `/openapi.json`."""

    name: str
    description: str
    schema: Mapping[str, Any]
    style: Mapping[str, Any] = {}

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
    ),
    Option(
        "_where",
        "A partition column and its value, like `_where=dt=2026-01-01`. Repeatable: several values of one column mean "
        "any of them. A value that no partition has is 400.",
        {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
        {"style": "form", "explode": True},
    ),
    Option("_limit", "The most rows of a key; `count` is of all.", _WHOLE_NUMBER),
    Option("_snapshot", "The snapshot to ask, instead of the newest.", _WHOLE_NUMBER),
    Option("_explain", "Whether to say what the answer cost.", {"type": "boolean"}),
)
NAMES = tuple(option.name for option in OPTIONS)
_SINGLE = [option.name for option in OPTIONS if not option.is_list]


@dataclass(frozen=True)
class Options:
    """The options of a query, apart from its key."""

    columns: list[str] | None = None
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    limit: int | None = None
    snapshot: int | None = None
    explain: bool = False


def query_options(scope: Mapping[str, Any]) -> tuple[Options, dict[str, str]]:
    """The options of a query, and its other parameters: column to value. BadRequest for a query that cannot be read."""
    if not scope["query_string"]:
        return Options(), {}
    options: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    for name, value in _pairs(scope["query_string"]):
        if name in NAMES:
            options.setdefault(name, []).append(value)
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


def _options(given: Mapping[str, list[str]]) -> Options:
    for name in _SINGLE:
        if len(given.get(name, ())) > 1:
            raise BadRequest(f"{name} is given twice")
    return Options(
        columns=_columns("_columns", given),
        where=_where("_where", given),
        limit=_number("_limit", given),
        snapshot=_number("_snapshot", given),
        explain=_flag("_explain", given),
    )


def _columns(name: str, given: Mapping[str, list[str]]) -> list[str] | None:
    if name not in given:
        return None
    columns = [column for text in given[name] for column in text.split(",")]
    if "" in columns:
        raise BadRequest(f"{name}: expected column names with commas between them, like {name}=a,b")
    return columns


def _where(name: str, given: Mapping[str, list[str]]) -> dict[str, list[str]]:
    where: dict[str, list[str]] = {}
    for text in given.get(name, ()):
        column, equals, value = text.partition("=")
        if not equals:
            raise BadRequest(f"{name}: expected a partition column with a value, like dt=2026-01-01; found {cut(text)}")
        where.setdefault(column, []).append(value)
    return where


def _number(name: str, given: Mapping[str, list[str]]) -> int | None:
    if name not in given:
        return None
    [text] = given[name]
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f"{name}: expected a whole number from 0 to {MOST_NUMBER}, found {cut(text)}")
    return int(text)


def _flag(name: str, given: Mapping[str, list[str]]) -> bool:
    if name not in given:
        return False
    [text] = given[name]
    if text not in _FLAGS:
        raise BadRequest(f"{name}: expected true or false, found {cut(text)}")
    return _FLAGS[text]
