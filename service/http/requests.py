"""The parts of a request: the options of a query, its key, and its body. BadRequest says what cannot be read.

OPTIONS is the one table of the options, which say how rows are fetched. A query holds key columns, too, so the name of
an option begins with an underscore: `/rows?country=de&_limit=10`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

import msgspec
from starlette.requests import ClientDisconnect, Request

from gnomon.service.errors import BadRequest, Overloaded, TooLarge
from gnomon.service.memory import Hold, Memory

MOST_PARAMETERS = 1000
MOST_NUMBER = 10**18 - 1  # of limit and snapshot
SHOWN_CHARACTERS = 100  # of what was found in a request, in the text of an error
_NUMBER = re.compile(r"[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}
_WHOLE_NUMBER = {"type": "integer", "minimum": 0, "maximum": MOST_NUMBER}
_TEXTS = {"type": "array", "items": {"type": "string"}}
PARSED = 4  # memory of a body with its batch, as a multiple of the body's bytes
ENCODED = "path_is_encoded"  # in the state of a request: its path is percent-encoded
VALUES_A_KEY = 64  # with the names of members: more than any key has columns
_MERGED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)  # one without an end takes the rest: linear time
_SIGNS = (b",", b":", b"[", b"{")  # each value of a JSON text but the first stands behind one of them


class Option(NamedTuple):
    """An option: its name in a query, and its members in `/openapi.json`. Only a query for a range of keys takes one
    `of_range`. One that `has_key` has values of a key, which may be personal data."""

    name: str
    description: str
    schema: Mapping[str, Any]
    style: Mapping[str, Any] = {}
    of_range: bool = False
    has_key: bool = False

    @property
    def is_list(self) -> bool:
        """Whether a query may give the option several times."""
        return bool(self.schema["type"] == "array")


OPTIONS = (
    Option(
        "_columns",
        "Names of the columns to return, separated by commas. Without this option all columns are returned.",
        {"type": "array", "items": {"type": "string", "minLength": 1, "pattern": "^[^,]+$"}, "minItems": 1},
        {"style": "form", "explode": False},
    ),
    Option(
        "_where",
        "A partition column and its value, like `_where=dt=2026-01-01`. Only partitions with this value are searched. "
        "Repeat it for more values of a column, or for more columns. A value that no partition has is an error (400).",
        {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
        {"style": "form", "explode": True},
    ),
    Option(
        "_limit",
        "The maximum number of rows of a key. `count` still counts all its rows. Of a range: the rows of a page, 100 "
        "without this option.",
        _WHOLE_NUMBER,
    ),
    Option("_snapshot", "The number of the snapshot to read, instead of the newest.", _WHOLE_NUMBER),
    Option("_explain", "True adds `explain` to the answer: its reads, bytes and time.", {"type": "boolean"}),
    Option(
        "_prefix",
        "A range: the keys that begin with this text. Repeat it for the first columns of a key; the value of the last "
        "one may be the beginning of a text.",
        _TEXTS,
        {"style": "form", "explode": True},
        of_range=True,
        has_key=True,
    ),
    Option(
        "_from",
        "A range: the keys from this one on. Repeat it for the first columns of a key.",
        _TEXTS,
        {"style": "form", "explode": True},
        of_range=True,
        has_key=True,
    ),
    Option(
        "_to",
        "A range: the keys before this one. Repeat it for the first columns of a key.",
        _TEXTS,
        {"style": "form", "explode": True},
        of_range=True,
        has_key=True,
    ),
    Option("_inclusive", "True adds the keys that equal or begin with `_to`.", {"type": "boolean"}, of_range=True),
    Option(
        "_reverse",
        "A range: true gives its keys in the opposite order. `_reverse=false` alone asks for all keys.",
        {"type": "boolean"},
        of_range=True,
    ),
    Option(
        "_after", "A range: the rows after a page, from its `next`.", {"type": "string"}, of_range=True, has_key=True
    ),
)
NAMES = tuple(option.name for option in OPTIONS)
OF_RANGES = tuple(option.name for option in OPTIONS if option.of_range)
WITH_KEYS = tuple(option.name for option in OPTIONS if option.has_key)
_SINGLE = [option.name for option in OPTIONS if not option.is_list]


@dataclass(frozen=True)
class RangeOptions:
    """The ends of a range of keys, each the texts of the first columns of a key, its direction, and the cursor of the
    page before."""

    prefix: list[str] | None = None
    low: list[str] | None = None
    high: list[str] | None = None
    inclusive: bool = False
    reverse: bool = False
    after: str | None = None


@dataclass(frozen=True)
class Options:
    """The options of a query, apart from its key. `range` is None where it gives no option of a range."""

    columns: list[str] | None = None
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    limit: int | None = None
    snapshot: int | None = None
    explain: bool = False
    range: RangeOptions | None = None


def query_options(scope: Mapping[str, Any]) -> tuple[Options, dict[str, str]]:
    """The options of a query, and its other parameters: column to value. BadRequest for a query that cannot be read, or
    that has both a key and a range."""
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
    found = _options(options)
    if others and found.range is not None:
        ranged = next(name for name in OF_RANGES if name in options)
        raise BadRequest(f"{cut(', '.join(others))} and {ranged}: expected a key or a range of keys, not both")
    return found, others


def options_alone(scope: Mapping[str, Any]) -> Options:
    """The options of a query whose keys are elsewhere. BadRequest for options of a range, and for other parameters."""
    options, others = query_options(scope)
    if options.range is not None:
        raise BadRequest(f"{', '.join(OF_RANGES)} are options of GET /rows without a key")
    if others:
        there = ", ".join(name for name in NAMES if name not in OF_RANGES)
        raise BadRequest(f"unknown parameter {cut(', '.join(others))}; there are {there}")
    return options


def next_target(scope: Mapping[str, Any], after: str) -> str:
    """The path and query of a request for the rows after a cursor, from the request for the rows before."""
    pairs = [pair for pair in _pairs(scope["query_string"]) if pair[0] != "_after"]
    root = scope.get("root_path", "").rstrip("/")
    return f"{quote(root + route_path(scope))}?{urlencode([*pairs, ('_after', after)], quote_via=quote)}"


def cut(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """A part of a request, as the text of an error shows it."""
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
        range=_range(given) if not given.keys().isdisjoint(OF_RANGES) else None,
    )


def _range(given: Mapping[str, list[str]]) -> RangeOptions:
    return RangeOptions(
        prefix=given.get("_prefix"),
        low=given.get("_from"),
        high=given.get("_to"),
        inclusive=_flag("_inclusive", given),
        reverse=_flag("_reverse", given),
        after=given["_after"][0] if "_after" in given else None,
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


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Each key is a value (one-column keys), a list in key order, or an object by column name; values may be null."""

    keys: list[Any]
    columns: list[str] | None = None


_decode_batch = msgspec.json.Decoder(BatchRequest).decode


def route_path(scope: Mapping[str, Any]) -> str:
    """The decoded path below `root_path`, the path at which the app is mounted, or under which a proxy serves it.

    A path that does not begin with the root path is returned whole: the proxy has removed the root path."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if path == root or path.startswith(f"{root}/") else path


def path_key(scope: Mapping[str, Any]) -> str:
    """The key in `/rows/{key}` or `/indexes/{name}/rows/{key}`: the raw path, percent-decoded exactly once.

    BadRequest where the raw path is not UTF-8 (the framework decodes such bytes to U+FFFD, which is another key), or
    does not end in the key that the routes found in the decoded path: something between rewrote one of the two."""
    key: str = scope["path_params"]["key"]
    path = unquote_to_bytes(scope.get("raw_path") or scope["path"])
    if path.endswith(b"/rows/" + key.encode(errors="replace")):
        return key
    try:
        sent = path.decode()
    except UnicodeDecodeError:
        raise BadRequest("the key in the path is not UTF-8 when percent-decoded") from None
    raise BadRequest(
        f"the key in the path cannot be read: the path as sent is {cut(sent)}, but it reached the routes as "
        f"{cut(scope['path'])}; ask in the query, like /rows?column=value"
    )


def may_lack_slashes(scope: Mapping[str, Any], key: str) -> bool:
    """Whether a proxy may have merged slashes of the key in the path. A proxy that decodes paths forwards
    `https%3A%2F%2Fhost` as `https:/host`, and `a%2F%2Fb` as `a/b`. So the slashes are not escaped, and never two in a
    row."""
    if _MERGED.match(key):
        return True
    raw: bytes = scope.get("raw_path") or b""
    before = unquote_to_bytes(raw).removesuffix(key.encode(errors="replace"))
    sent = b"/" + raw.split(b"/", before.count(b"/"))[-1]
    return b"/" in sent[1:] and b"//" not in sent


async def read_body(request: Request, most_bytes: int, bodies: Memory, client: str) -> tuple[bytes, Hold]:
    """The whole body, and the memory that it and the batch in it hold, which the caller gives back.

    TooLarge before any of it is read where its length is given, else before more than `most_bytes` are held. Overloaded
    where the memory is not free: at once where the length is given."""
    body, hold = bytearray(), Hold(bodies, client)
    too_large = TooLarge(f"the body is larger than {most_bytes} bytes (setting max_body_bytes)")
    given = request.headers.get("content-length", "")
    length = int(given[:20]) if given.isascii() and given.isdigit() else 0
    if length > most_bytes:
        raise too_large
    try:
        _hold_body(hold, length)
        async for chunk in request.stream():
            if len(body) + len(chunk) > most_bytes:
                raise too_large
            body += chunk
            _hold_body(hold, len(body))
    except ClientDisconnect:
        hold.close()
        raise BadRequest("the connection ended inside the body") from None
    except BaseException:
        hold.close()
        raise
    return bytes(body), hold


def _hold_body(hold: Hold, size: int) -> None:
    if not hold.grow_to(PARSED * size):
        raise Overloaded(
            "the bodies of other requests hold the memory that is for them (setting memory_bytes); come again later"
        )


def parse_batch(body: bytes, most_keys: int) -> BatchRequest:
    """The keys and columns that the body of `POST /rows` asks for. BadRequest or TooLarge for another body. For a
    thread: it may take long."""
    _check_values(body, most_keys)
    try:
        batch = _decode_batch(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        batch = _parse_by_rule(body)
    if len(batch.keys) > most_keys:
        raise TooLarge(f"{len(batch.keys)} keys; at most {most_keys} in one batch (setting max_batch_keys)")
    return batch


def _parse_by_rule(body: bytes) -> BatchRequest:
    """The batch in a body that msgspec refuses: Python's decoder takes half surrogates, which fail only their key, and
    says where the JSON ends."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise BadRequest(f"the body is not JSON ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("keys"), list):
        found = "no list of keys in it" if isinstance(content, dict) else f"a {type(content).__name__}"
        raise BadRequest(f'the body: expected an object like {{"keys": [...], "columns": [...]}}, found {found}')
    unknown = [name for name in content if name not in ("keys", "columns")]
    if unknown:
        raise BadRequest(
            f"the body: unknown member {cut(', '.join(unknown))}; there are keys, columns; the rest goes into the query"
        )
    columns = content.get("columns")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(name, str) for name in columns)):
        raise BadRequest("columns: expected a list of column names")
    return BatchRequest(content["keys"], columns)


def _check_values(body: bytes, most_keys: int) -> None:
    """TooLarge for a body with more values than that many keys can have. The decoders are in C: they block all other
    threads until they are done, for seconds if megabytes are full of small values, which take 32 times the memory."""
    most = VALUES_A_KEY * (most_keys + 1)
    if sum(map(body.count, _SIGNS)) <= most:
        return
    found = begin = 0
    for string in _STRING.finditer(body):
        between = sum(body.count(sign, begin, string.start()) for sign in _SIGNS)
        found, begin = found + between, string.end()
        if not between or found > most:  # two strings side by side are no JSON: a decoder stops here
            break
    else:
        found += sum(body.count(sign, begin) for sign in _SIGNS)
    if found > most:
        raise TooLarge(f"more than {most} values; at most {most_keys} keys in one batch (setting max_batch_keys)")
