"""The sources of settings: flags, `--set`, the environment, a TOML file, the defaults of a container image. Each value
keeps its place, and errors name it."""

import difflib
import json
import math
import os
import re
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from msgspec import Meta, ValidationError, convert

from gnomon.shadow import UsageError

SHOWN_CHARACTERS = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAMED = re.compile(r"([^/=]*)=(.*)", re.DOTALL)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_FLAGS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
PREFIX = "GNOMON_"
DEFAULT_PREFIX = PREFIX + "DEFAULT_"  # defaults of a container image: any other source overrides them
CONFIG = PREFIX + "CONFIG"
# Variables that other parts of the project read, and prefixes of variables for tests.
OTHERS = (CONFIG, *(PREFIX + name for name in ("LOG", "WEBHDFS", "WEBHDFS_TOKEN", "STORE_MINUTES", "KERNEL", "TOKEN")))
OTHER_PREFIXES = (PREFIX + "TEST_", PREFIX + "REPLAY_")
FILE_PATHS = ("cache_folder", "tokens_file", "tls_certificate", "tls_key")  # settings that are local paths
INDEX_KEYS = ("path", "columns", "hidden_columns")
# Kubernetes puts these into every container, for a service called gnomon or gnomon-*.
_OF_KUBERNETES = re.compile(r"GNOMON_(?:\w+_)?(?:SERVICE_(?:HOST|PORT\w*)|PORT_[0-9]+_(?:TCP|UDP|SCTP)\w*)")
_ADDRESS_OF_KUBERNETES = re.compile(r"(?:tcp|udp|sctp)://[0-9a-fA-F.:\[\]]+")
# What errors name as expected, by the beginning of the message of Python's TOML parser.
_TOML = "a setting like port = 8000, a table like [indexes.pages], or a comment behind #"
_EXPECTED = {
    "Expected '='": "a setting like port = 8000: its name, =, its value",
    "Invalid statement": _TOML,
    "Invalid initial character": _TOML,
    "Invalid value": 'a value: a number, true, false, a text in "quotes", or a list like ["a", "b"]',
    "Expected newline": 'the end of the line behind one value; a text stands in "quotes"',
    "Unterminated string": "the \" or ' that ends the text",
    "Illegal character": "the quote that ends the text on its own line, and no control characters",
    "Found invalid character": "no control characters",
    "Unescaped": r"\\ for a backslash in a text, or the text in single quotes",
    "Unclosed array": "the ] that ends the list, and commas between its values",
    "Unclosed inline table": "the } that ends the table, and commas between its members",
    "Expected ']": "the ] that ends the name of the table, as in [indexes.pages]",
    "Cannot declare": "each table once, with all that it holds",
    "Cannot overwrite": "each setting once",
    "Duplicate": "each member of a table once",
}


class Setting:
    """A setting of the table. `kind` is int, float, bool, str, tuple (a list of texts) or dict (lists of texts by
    name); `type` has its bounds, too."""

    def __init__(self, type: Any, field: Field[Any]) -> None:
        self.default: Any = {} if field.default_factory is not MISSING else field.default
        self.unit, self.help, self.secret, self.expected, self.bounds = field.metadata["told"]
        others: list[Any] = []
        if get_origin(type) in (Union, types.UnionType):  # with None
            type, *others = get_args(type)
        self.type = Union[Annotated[type, Meta(**self.bounds)], *others]
        plain = get_args(type)[0] if get_origin(type) is Annotated else type
        self.kind: Any = get_origin(plain) or plain


Fields = Mapping[str, Setting]


def from_text(text: str, field: Setting) -> Any:
    """The value that a text stands for. An invalid text is returned unchanged, and the table refuses it."""
    wanted = field.kind
    if wanted is bool:
        return _FLAGS.get(text.strip().lower(), text)
    if wanted is int:
        return int(text) if _WHOLE.fullmatch(text.strip()) else text
    if wanted is float:
        return float(text) if _DECIMAL.fullmatch(text.strip()) else text
    if wanted is str:
        return text
    if wanted is tuple and not text.lstrip().startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()] if text.strip() else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def expected(field: Setting) -> str:
    """The values that a setting takes, in words."""
    wanted = field.kind
    if wanted is bool:
        return "true or false"
    if wanted is dict:
        return 'a list of columns for each index, like {"pages": ["url", "title"]}'
    if wanted is tuple:
        return "a list of one text or more" if "min_length" in field.bounds else "a list of texts ([] for none)"
    if wanted is str:
        return field.expected or "a text that is not empty"
    return ("a whole number" if wanted is int else "a number") + _bounds(field)


def _bounds(field: Setting) -> str:
    bounds = field.bounds
    low = f" above {bounds['gt']}" if "gt" in bounds else f" from {bounds['ge']}" if "ge" in bounds else ""
    high = str(bounds.get("le", ""))
    if not high:
        return f"{low} on" if low.startswith(" from") else low
    return f"{low}{' to' if low.startswith(' from') else ', at most'} {high}"


def shown(value: object, secret: bool) -> str:
    """A value as an error shows it. A secret is not shown."""
    if secret:
        return "something else (not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


class Given(NamedTuple):
    """A value, and its place as an error names it. `by_index` has the places of the values for single indexes, where
    these differ."""

    value: Any
    where: str
    by_index: Mapping[str, str] = MappingProxyType({})


def of_flags(flags: Mapping[str, Any], fields: Fields) -> dict[str, Given]:
    """The settings of the command line. None means that a flag was not given. Texts are parsed."""
    found = {}
    for name, value in flags.items():
        if name not in fields:
            raise UsageError(f"there is no setting {name}{_nearest(name, fields)}")
        if value is not None:
            where = "INDEX" if name == "indexes" else f"--{name.replace('_', '-')}"
            found[name] = Given(from_text(value, fields[name]) if isinstance(value, str) else value, where)
    return found


def of_pairs(pairs: Sequence[str], fields: Fields) -> dict[str, Given]:
    """The settings of `--set NAME=VALUE`."""
    found: dict[str, Given] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError("--set: expected NAME=VALUE, like --set threads=8, found no =")
        if name not in fields:
            raise UsageError(f"--set: there is no setting {shown(name, False)}{_nearest(name, fields)}")
        if name in found:
            raise UsageError(f"--set {name}: is given twice")
        found[name] = Given(from_text(text, fields[name]), f"--set {name}")
    return found


def of_environment(environment: Mapping[str, str], fields: Fields, prefix: str = PREFIX) -> dict[str, Given]:
    """The settings of the variables `GNOMON_*`, or of `GNOMON_DEFAULT_*`. UsageError for a variable that no program of
    the project reads: it may be misspelt."""
    variables = {prefix + name.upper(): name for name in fields}
    found = {}
    for variable, text in environment.items():
        upper = variable.upper()
        if not upper.startswith(prefix) or _is_of_others(variable, text):
            continue
        if upper.startswith(DEFAULT_PREFIX) and prefix == PREFIX:
            continue
        if variable not in variables:
            raise UsageError(f"{variable}: no setting has this variable{_nearest(variable.upper(), variables)}")
        name = variables[variable]
        found[name] = Given(from_text(text, fields[name]), variable)
    return found


def _is_of_others(variable: str, text: str) -> bool:
    if variable in OTHERS or variable.startswith(OTHER_PREFIXES) or _OF_KUBERNETES.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _ADDRESS_OF_KUBERNETES.fullmatch(text) is not None


def of_file(given: str, fields: Fields, where: str = "") -> dict[str, Given]:
    """The settings of a TOML file: settings by name, and `[indexes.NAME]` tables, or `NAME = "path"` in the table
    `[indexes]`; the first is the default index. `where` is the option or variable that names the file. If it is empty,
    the file was found, and its paths are relative to its folder."""
    at_file = f"{where}: {given}" if where else given
    try:
        text = Path(given).read_bytes().decode()
        content = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{at_file}: {error.strerror or error}; expected a TOML file that can be read") from None
    except UnicodeDecodeError:
        raise UsageError(f"{at_file}: expected a TOML file in UTF-8, found other bytes") from None
    except RecursionError:
        raise UsageError(f"{at_file}: expected TOML, found lists or tables too deep inside each other") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{at_file}{_not_toml(str(error), text)}") from None
    found = {}
    for name, value in content.items():
        at = f"{given}{_line(text, name)}: {name}"
        if name not in fields:
            raise UsageError(f"{at}: there is no such setting{_nearest(name, fields)}")
        found[name] = Given(value, at)
    if isinstance(content.get("indexes"), dict):
        found |= _of_tables(given, text, content, fields)
    if not where:
        found = {
            name: one._replace(value=_below(os.path.dirname(given), name, one.value)) for name, one in found.items()
        }
    return found


def _below(folder: str, name: str, value: Any) -> Any:
    """A value of a file in this folder, with relative paths of this machine taken from the folder."""
    if name == "indexes" and isinstance(value, list):
        return [_index_below(folder, one) if isinstance(one, str) else one for one in value]
    return _path_below(folder, value) if name in FILE_PATHS and isinstance(value, str) else value


def _index_below(folder: str, given: str) -> str:
    name, equals, path = given.partition("=") if _NAMED.fullmatch(given) else ("", "", given)
    return f"{name}{equals}{_path_below(folder, path)}"


def _path_below(folder: str, path: str) -> str:
    return path if not path or "://" in path or path.startswith(("~", "file:")) else os.path.join(folder, path)


def name_and_path(given: str, where: str) -> tuple[str, str]:
    """The name and the path of one of `indexes`. An index without `NAME=` is called after its last folder. UsageError
    for a name that is invalid in a path."""
    named = _NAMED.fullmatch(given)
    if named:
        name, path = named.groups()
        if not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {given}: expected letters, digits and _.- before =, found {name!r}")
        if not path:
            raise UsageError(f"{where}: {given}: expected a path or URL after =")
        return name, path
    last = given.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-.") or "index"
    return name[:64], given


def _not_toml(message: str, text: str) -> str:
    """The text after the file's name for a syntax error: its place, and what is expected. The line is not shown: it may
    hold tokens."""
    why, at, position = message.rpartition(" (at ")
    numbers = re.fullmatch(r"line ([0-9]+), column ([0-9]+)\)", position)
    lines = text.splitlines() or [""]
    line, column = (numbers[1], numbers[2]) if numbers else (len(lines), len(lines[-1]) + 1)
    expected = next((words for begin, words in _EXPECTED.items() if why.startswith(begin)), _TOML)
    return f", line {line}, column {column}: expected {expected} (the parser says: {why if at else message})"


def _of_tables(given: str, text: str, content: Mapping[str, Any], fields: Fields) -> dict[str, Given]:
    """`indexes`, `columns` and `hidden_columns` of the tables `[indexes.NAME]`."""
    paths: list[str] = []
    lists: dict[str, dict[str, Any]] = {}
    stands: dict[str, dict[str, str]] = {}
    tables: dict[str, Any] = content["indexes"]
    for index, table in tables.items():
        at = f"{given}{_line(text, index, 'indexes')}: indexes.{index}"
        if isinstance(table, str) and table:
            table = {"path": table}
        if not isinstance(table, dict):
            raise UsageError(f'{at}: expected a path or URL, or a table with a path, like {index} = "/data/{index}"')
        for key, value in table.items():
            at_key = f"{given}{_line(text, key, f'indexes.{index}')}: indexes.{index}.{key}"
            if key not in INDEX_KEYS:
                raise UsageError(f"{at_key}: there is no such key{_nearest(key, INDEX_KEYS)}")
            if key == "path" and not (isinstance(value, str) and value):
                raise UsageError(f"{at_key}: expected a path or URL, found {shown(value, False)}")
            if key != "path" and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
                raise UsageError(f"{at_key}: expected a list of column names, found {shown(value, False)}")
            if key in content:
                raise UsageError(f"{at_key}: is given here and as {key} of the whole file; leave one of them out")
            if key != "path":
                lists.setdefault(key, {})[index] = value
                stands.setdefault(key, {})[index] = at_key
        if "path" not in table:
            raise UsageError(f"{at}: expected a path or URL as its path, found none")
        paths.append(f"{index}={table['path']}")
    where = f"{given}{_line(text, 'indexes')}"
    return {"indexes": Given(paths, f"{where}: indexes")} | {
        name: Given(value, f"{where}: indexes.*.{name}", stands[name])
        for name, value in lists.items()
        if name in fields
    }


def _line(text: str, key: str, table: str = "") -> str:
    """The line of a key or table in a TOML file as errors name it. Empty where the key is written in an unusual way."""
    inside, name = "", re.escape(key)
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
        if header:
            inside = header[1].replace('"', "").replace("'", "")
            if inside == (f"{table}.{key}" if table else key):
                return f", line {number}"
        elif inside == table and re.match(rf"""\s*["']?{name}["']?\s*[=.]""", line):
            return f", line {number}"
    return ""


def _nearest(name: str, known: Iterable[str]) -> str:
    names = {one.removeprefix(PREFIX): one for one in known}  # the common prefix must not make names similar
    near = difflib.get_close_matches(name.removeprefix(PREFIX), names, 1)
    return f"; did you mean {names[near[0]]}?" if near else f"; there are {', '.join(names.values())}"


def checked(given: Given, field: Setting) -> Any:
    """The value as the table holds it: a list as a tuple. UsageError for a value that it refuses."""
    value = given.value
    with suppress(ValidationError):
        found = convert(value, field.type, strict=True)
        if not isinstance(found, float) or math.isfinite(found):
            return found
    found = "nothing" if value in ("", [], ()) else shown(value, field.secret)
    raise UsageError(f"{given.where}: expected {expected(field)}, found {found}")
