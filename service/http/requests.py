"""The path and the body of a request. BadRequest says what in it cannot be read."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import ClientDisconnect, Request

from gnomon.service.errors import BadRequest, Overloaded, TooLarge
from gnomon.service.http.options import cut
from gnomon.service.memory import Hold, Memory

PARSED = 4  # memory of a body with its batch, as a multiple of the body's bytes
ENCODED = "path_is_encoded"  # in the state of a request: its path is percent-encoded
VALUES_A_KEY = 64  # with the names of members: more than any key has columns
_MERGED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)  # one without an end takes the rest: linear time
_SIGNS = (b",", b":", b"[", b"{")  # each value of a JSON text but the first stands behind one of them


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
