"""The document of the routes, `/openapi.json`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import msgspec
from starlette.routing import BaseRoute, Route

from gnomon.service.api.responses import ARROW, CSV, JSON
from gnomon.service.api.shapes import schemas
from gnomon.service.errors import MEDIA_TYPE
from gnomon.service.http import OPTIONS
from gnomon.service.settings import Settings


class Example(msgspec.Struct):
    """A request, the route that answers it, and its answer. A test sends the request and compares the answer."""

    route: str
    method: str
    target: str
    status: int
    answer: Any
    body: Any = None


EXAMPLES = msgspec.json.decode(
    files("gnomon.service.api").joinpath("examples.json").read_bytes(), type=dict[str, Example]
)
ABOUT = "Rows of a data lake by their key. Every failure is `application/problem+json`."
TAGS = [
    {"name": "rows", "description": "Rows by their key, from the default index or from an index by its name."},
    {"name": "indexes", "description": "The list of the indexes, and the description of each."},
    {"name": "operations", "description": "Checks whether the service is alive and ready."},
]
BEARER = "bearer"
SECURITY_SCHEMES = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that `gnomon token` printed. A service that has no tokens answers everybody.",
    }
}

MEANING = {
    400: "The request is wrong: its form, a column, or the type of a key",
    401: "The request has no token, or the service does not know the token",
    403: "The token is not allowed to read this index",
    404: "No row that the snapshot covers has the key, or the index or snapshot does not exist",
    406: "The service has none of the media types in `Accept`",
    408: "The request did not arrive completely in time",
    409: "A source file changed after it was indexed, and no newer snapshot covers the changed file",
    413: "The request or its answer is larger than a limit",
    414: "The path and query are longer than the limit",
    429: "The client sent more requests than its limit allows",
    431: "The headers are larger than the limit",
    500: "The service failed because of an error in Gnomon",
    501: "A source file has a format or feature that Gnomon cannot read",
    503: "The index or the source is damaged or unreachable, or the service is overloaded or too slow",
}
ANYWHERE = (400, 408, 414, 429, 431, 500, 503)  # before any route, or wherever it leads
GUARDED = (401, 403)
OF_INDEX = (*GUARDED, 404)
OF_KEYS = (*OF_INDEX, 400, 406)
OF_ROWS = (*OF_KEYS, 409, 413, 501)


def _header(description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind, **schema}}


REQUEST_ID = {
    "X-Request-Id": _header(
        "The id of the request: the id that the client sent, or a new one. The log has it, too.", pattern="^[!-~]+$"
    )
}
LINK = {"Link": _header('Of a page of a range that another page follows: `<PATH?QUERY>; rel="next"`.')}
RETRY_AFTER = {"Retry-After": _header("Seconds to wait before sending the request again.", "integer", minimum=0)}
HEADERS = {
    401: {"WWW-Authenticate": _header("`Bearer`")},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}


def _parameter(name: str, place: str, description: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}
    return given | more


KEY = _parameter(
    "key",
    "path",
    "The key: everything after `/rows/`, percent-decoded once. It may be empty, and it may contain slashes. The "
    "characters `?`, `#` and `%` must be percent-encoded.",
    {"type": "string"},
)
NAME = _parameter(
    "name",
    "path",
    "The name of the index. `/indexes` lists all names.",
    {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$", "maxLength": 64},
)
KEY_COLUMNS = _parameter(
    "key",
    "query",
    "The key: each key column with its value, like `country=de&id=5`. Use POST if a key column has the name of an "
    "option (like `_limit`), or if a value is null.",
    {"type": "object", "additionalProperties": {"type": "string"}},
    style="form",
    explode=True,
)
OPTION_PARAMETERS, RANGE_PARAMETERS = (
    [
        _parameter(one.name, "query", one.description, dict(one.schema), **one.style)
        for one in OPTIONS
        if one.of_range is of_range
    ]
    for of_range in (False, True)
)


def batch(route: str) -> dict[str, Any]:
    """The body of a batch, with the examples of its route."""
    shown = {name: {"value": one.body} for name, one in EXAMPLES.items() if one.route == route and one.body is not None}
    content = {"schema": _reference("BatchRequest"), "examples": shown}
    return {"required": True, "content": {JSON: content}}


class DocumentedRoute(Route):
    """A route of one method, and its operation in the document, which takes the docstring of the handler as its
    description. A route of Starlette's answers a HEAD wherever it answers a GET."""

    def __init__(self, path: str, method: str, handler: Callable[..., Any], operation: Mapping[str, Any]) -> None:
        super().__init__(path, handler, methods=[method])
        self.method, self.methods = method, {method}
        text = inspect.getdoc(handler)
        self.operation = {"summary": self.name.replace("_", " ").title(), **({"description": text} if text else {})}
        self.operation |= operation


def operation(
    name: str,
    tag: str,
    found: dict[str, Any],
    statuses: Sequence[int] = (),
    parameters: Sequence[Mapping[str, Any]] = (),
    body: Mapping[str, Any] | None = None,
    has_etag: bool = False,
) -> dict[str, Any]:
    """The operation of a route in the document. `statuses` are the codes with which this route can fail; the codes of
    ANYWHERE, with which every route can fail, are added. A route with `has_etag` can answer 304."""
    failures = {status: _problem(status, "content" not in found) for status in sorted({*statuses, *ANYWHERE})}
    answers = {200: found, **({304: NOT_MODIFIED} if has_etag else {}), **failures}
    responses = {str(status): answer for status, answer in answers.items()}
    told: dict[str, Any] = {"tags": [tag], "operationId": name, "responses": responses}
    told |= {"parameters": list(parameters)} if parameters else {}
    return told | ({"requestBody": body} if body is not None else {})


def _problem(status: int, is_head: bool) -> dict[str, Any]:
    response: dict[str, Any] = {"description": MEANING[status], "headers": REQUEST_ID | HEADERS.get(status, {})}
    if not is_head:
        content: dict[str, Any] = {"schema": _reference("Problem")}
        shown = {name: {"value": one.answer} for name, one in EXAMPLES.items() if one.status == status}
        response["content"] = {MEDIA_TYPE: content | ({"examples": shown} if shown else {})}
    return response


CSV_ROWS = (
    "The rows as CSV, in UTF-8, with the names of the columns in the first line (RFC 4180). Null is an empty field; "
    "values that are no texts are written as in JSON. In a batch the first column is `key_number`, the place of the "
    "row's key in the batch, from 0, and a key that fails fails the batch."
)


def answer(shape: type[msgspec.Struct], route: str, arrow: str = "") -> dict[str, Any]:
    """The answer of a route that gives JSON, with its examples, and Arrow where `arrow` says what is in it."""
    shown = {
        name: {"summary": f"{one.method} {one.target}", "value": one.answer}
        for name, one in EXAMPLES.items()
        if one.route == route and one.status == 200
    }
    content: dict[str, Any] = {JSON: {"schema": _reference(shape.__name__), "examples": shown}}
    if arrow:
        content[ARROW] = {"schema": {"type": "string", "format": "binary", "description": arrow}}
        content[CSV] = {"schema": {"type": "string", "description": CSV_ROWS}}
    description = " ".join((shape.__doc__ or "").split())
    return {"description": description, "headers": REQUEST_ID, "content": content}


def of_either(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The answer of a route that gives one or the other, and then links to the next page."""
    content: dict[str, Any] = {}
    for media_type, first in one["content"].items():
        second = other["content"][media_type]
        content[media_type] = {"schema": {"anyOf": [first["schema"], second["schema"]]}}
        if "examples" in first:
            content[media_type]["examples"] = first["examples"]
    description = f"{one['description']} Or: {other['description']}"
    return {"description": description, "headers": REQUEST_ID | LINK, "content": content}


def _reference(shape: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{shape}"}


NOT_MODIFIED = {
    "description": "The answer did not change: the client sent its ETag in `If-None-Match`",
    "headers": REQUEST_ID,
}
FOUND = {"description": "A GET of the same path would return 200. The answer has no body", "headers": REQUEST_ID}


def document(routes: Iterable[BaseRoute], settings: Settings, root_path: str) -> dict[str, Any]:
    """The whole document. `root_path` is the path below which the service is mounted."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, DocumentedRoute):
            paths.setdefault(route.path_format, {})[route.method.lower()] = route.operation
    shapes = schemas()
    shapes["BatchRequest"]["properties"]["keys"]["maxItems"] = settings.max_batch_keys
    needed = settings.tokens_file is not None or bool(settings.tokens)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gnomon", "description": ABOUT, "version": version("gnomon-index")},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
        "tags": TAGS,
        "components": {"schemas": shapes, "securitySchemes": SECURITY_SCHEMES},
        "security": [{BEARER: []}] if needed else [{}, {BEARER: []}],
    }
