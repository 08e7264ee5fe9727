"""Tools for agents: the Model Context Protocol (MCP), over HTTP at `/mcp` and over standard input and output.

A tool makes requests to the routes of the same app, inside the process. So tokens, hidden columns, limits, rates, the
log and the metrics are those of the routes. A call over HTTP is one request, already admitted; a tool that makes more
requests has each of them counted."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import anyio
import msgspec
from fastapi import FastAPI
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gnomon.service.errors import Forbidden
from gnomon.service.http import cut
from gnomon.service.settings import Settings

PATH = "/mcp"
MOST_BYTES = 1 << 20  # of an answer: an agent reads all of it
FEW_ROWS, PAGE_ROWS = 10, 100  # where a call gives no limit: of a key, of a page
PASSED_ON = (b"authorization", b"x-forwarded-for", b"x-request-id")  # headers of the caller
INSTRUCTIONS = (
    "Rows of data-lake tables by their key, in milliseconds, without a scan. describe_index names the key columns and "
    "the columns. A key that has no row has the count 0. An answer has at most 1 MiB: name the columns that you need."
)

Key = Annotated[
    Any,
    msgspec.Meta(
        description="The key: a text or a number; of several columns a list in their order, or an object by column "
        "name. Give decimals and large integers as texts.",
        extra_json_schema={"type": ["string", "number", "boolean", "array", "object", "null"]},
    ),
]
Columns = Annotated[list[str], msgspec.Meta(description="The columns to return; all without it.")]
Ends = Annotated[
    str | list[str], msgspec.Meta(description="A text, or the texts of the first columns of a key of several columns.")
]
Limit = Annotated[int, msgspec.Meta(ge=0, description="The most rows of a key; count still counts all of them.")]
Snapshot = Annotated[int, msgspec.Meta(ge=0, description="A kept snapshot of the index; the newest without it.")]
Where = Annotated[
    dict[str, str | list[str]],
    msgspec.Meta(description="Partition columns and their values: only these partitions are searched."),
]


class ToolFailed(Exception):
    """A call cannot be answered. The text, and the members of the problem if the routes gave one, are for the agent."""

    def __init__(self, what: str, members: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.members = members


class Arguments(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What every tool takes."""

    index: Annotated[str, msgspec.Meta(description="The name of an index; the default index without it.")] | None = None


class OfRows(Arguments, kw_only=True):
    """What the tools take that return rows of keys."""

    columns: Columns | None = None
    where: Where | None = None
    limit: Limit = FEW_ROWS
    snapshot: Snapshot | None = None


class GetRow(OfRows, kw_only=True):
    key: Key


class GetRows(OfRows, kw_only=True):
    keys: Annotated[list[Key], msgspec.Meta(min_length=1, description="Keys; the answer keeps their order.")]


class ListKeys(Arguments, kw_only=True):
    prefix: Annotated[Ends, msgspec.Meta(description="The keys that begin with it.")] | None = None
    low: Annotated[Ends, msgspec.Meta(description="The keys from this one on.")] | None = msgspec.field(
        name="from", default=None
    )
    high: Annotated[Ends, msgspec.Meta(description="The keys before this one.")] | None = msgspec.field(
        name="to", default=None
    )
    inclusive: Annotated[bool, msgspec.Meta(description="Also the keys that equal or begin with `to`.")] = False
    reverse: Annotated[bool, msgspec.Meta(description="In the opposite order.")] = False
    columns: Annotated[list[str], msgspec.Meta(description="More columns; only the key without it.")] | None = None
    where: Where | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, description="The most rows of this page.")] = PAGE_ROWS
    after: Annotated[str, msgspec.Meta(description="`after` of the page before.")] | None = None
    snapshot: Snapshot | None = None


class KeyHistory(Arguments, kw_only=True):
    key: Key
    columns: Columns | None = None
    limit: Limit = FEW_ROWS
    snapshots: Annotated[int, msgspec.Meta(ge=1, le=200, description="How many snapshots to search.")] = 20


Asked = TypeVar("Asked", bound=Arguments)


class Caller:
    """Makes requests to the app in the name of one caller: of a request over HTTP, or of the user who started this
    process, with that user's token."""

    def __init__(self, app: FastAPI, request: Request | None, token: str | None) -> None:
        self._app = app
        scope: Mapping[str, Any] = {"headers": [(b"authorization", f"Bearer {token}".encode())] if token else []}
        self._scope = scope if request is None else request.scope
        self._admitted = {"asker": request.scope["state"]["asker"]} if request is not None else {}

    async def ask(self, method: str, path: str, query: Iterable[tuple[str, str]] = (), body: object = None) -> Any:
        """The JSON of an answer. ToolFailed for an answer that is a problem, or that is too large."""
        root, content = self._scope.get("root_path", ""), msgspec.json.encode(body) if body is not None else b""
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self._scope.get("scheme", "http"),
            "path": root + path,
            "raw_path": quote(root + path).encode(),
            "query_string": urlencode(list(query), quote_via=quote).encode(),
            "root_path": root,
            "headers": [
                *((name, value) for name, value in self._scope["headers"] if name in PASSED_ON),
                (b"accept", b"application/json"),
                (b"content-length", str(len(content)).encode()),
            ],
            "client": self._scope.get("client"),
            "server": self._scope.get("server"),
            "state": self._admitted,
        }
        self._admitted = {}  # the next request is one more
        answer = _Answer(content)
        await self._app(scope, answer.receive, answer.send)
        return answer.json()

    async def known(self) -> list[dict[str, Any]]:
        """The indexes that the caller may ask, the default first."""
        found: list[dict[str, Any]] = (await self.ask("GET", "/indexes"))["indexes"]
        return found


class _Answer:
    """One request's body for the app, and the app's answer."""

    def __init__(self, body: bytes) -> None:
        self._request: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._status, self._body, self._size = 0, bytearray(), 0

    async def receive(self) -> Message:
        if not self._request:
            await anyio.sleep_forever()  # the caller waits; where it has left, this task is cancelled
        return self._request.pop()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._size += len(part)
            if self._size <= MOST_BYTES:
                self._body += part

    def json(self) -> Any:
        if self._size > MOST_BYTES:
            raise ToolFailed(
                f"the answer has {self._size:,} bytes; an agent gets at most {MOST_BYTES:,}: ask for fewer columns, "
                "fewer keys, or a smaller limit"
            )
        found = msgspec.json.decode(bytes(self._body))
        if self._status >= 400:
            raise ToolFailed(f"{found['title']}: {found['detail']}", found)
        return found


def _route(asked: Arguments, path: str) -> str:
    return path if asked.index is None else f"/indexes/{quote(asked.index, safe='')}{path}"


def _options(columns: list[str] | None, **options: Any) -> list[tuple[str, str]]:
    """The options of a query; those that are None or False are left out."""
    pairs = [("_columns", name) for name in columns or ()]
    for name, value in options.items():
        if isinstance(value, dict):
            pairs += [(f"_{name}", f"{column}={text}") for column, texts in value.items() for text in _texts(texts)]
        elif value is not None and value is not False:
            pairs += [(f"_{name}", text) for text in _texts("true" if value is True else value)]
    return pairs


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


async def describe_index(caller: Caller, asked: Arguments) -> Any:
    """Describe an index: its key columns, its columns with their types, its newest and kept snapshots, its partitions,
    its limits. Without `index`: the list of all indexes with their key columns."""
    return await caller.ask("GET", "/indexes" if asked.index is None else _route(asked, ""))


async def get_row(caller: Caller, asked: GetRow) -> Any:
    """The rows of one key. The count is 0 where no row has the key."""
    answer = await _rows(caller, asked, [asked.key])
    [found] = answer.pop("results")
    if "error" in found:
        raise ToolFailed(f"{found['error']['title']}: {found['error']['detail']}", found["error"])
    return {**found, **answer}


async def get_rows(caller: Caller, asked: GetRows) -> Any:
    """The rows of many keys in one call, in the order of the keys. A key that fails has an `error` in its result."""
    return await _rows(caller, asked, asked.keys)


async def _rows(caller: Caller, asked: OfRows, keys: list[Any]) -> Any:
    options = _options(asked.columns, where=asked.where, limit=asked.limit, snapshot=asked.snapshot)
    return await caller.ask("POST", _route(asked, "/rows"), options, {"keys": keys})


async def list_keys(caller: Caller, asked: ListKeys) -> Any:
    """The keys that begin with a prefix, or lie in a range, in key order and page by page; with `columns`, more of
    their rows. Without prefix, from and to: all keys. Another page follows where the answer has `after`."""
    listed = await caller.known()
    index = next((one for one in listed if one["name"] == asked.index), listed[0] if asked.index is None else None)
    names = list(index["keys"] or ()) if index is not None else []
    options = _options(
        [*names, *(name for name in asked.columns or () if name not in names)],
        prefix=asked.prefix,
        **{"from": asked.low, "to": asked.high},
        inclusive=asked.inclusive,
        where=asked.where,
        limit=asked.limit,
        after=asked.after,
        snapshot=asked.snapshot,
    )
    try:
        answer = await caller.ask("GET", _route(asked, "/rows"), [*options, ("_reverse", str(asked.reverse).lower())])
    except ToolFailed as error:
        if error.members is None or error.members["title"] != "Key not found":
            raise
        return {"rows": [], "count": 0, "snapshot": error.members["snapshot"]}
    following = answer.pop("next", None)
    return answer if following is None else {**answer, "after": parse_qs(urlsplit(following).query)["_after"][0]}


async def key_history(caller: Caller, asked: KeyHistory) -> Any:
    """The rows of a key in the kept snapshots of the index: periods in which its rows stayed the same, the newest
    first. `until` is when the next snapshot was committed; the newest period has none."""
    listed = await caller.known()
    name = asked.index if asked.index is not None else listed[0]["name"]
    kept = (await caller.ask("GET", f"/indexes/{quote(name, safe='')}"))["snapshots"][::-1]
    periods: list[dict[str, Any]] = []
    until: str | None = None
    for one in kept[: asked.snapshots]:
        asked_then = OfRows(index=name, columns=asked.columns, limit=asked.limit, snapshot=one["snapshot"])
        try:
            [found] = (await _rows(caller, asked_then, [asked.key]))["results"]
        except ToolFailed as error:  # as of a snapshot that was removed just now
            if error.members is None or not periods or error.members["status"] in (401, 403, 429):
                raise
            found = {"error": error.members}
        found = {name: found[name] for name in ("count", "rows", "error") if name in found}
        if periods and {name: periods[-1].get(name) for name in found} == found:
            periods[-1] |= {"first_snapshot": one["snapshot"], "from": one.get("committed_at")}
        else:
            snapshots = {"first_snapshot": one["snapshot"], "last_snapshot": one["snapshot"]}
            periods.append({**snapshots, "from": one.get("committed_at"), "until": until, **found})
        until = one.get("committed_at")
    return {"key": asked.key, "periods": periods, "snapshots_not_searched": max(0, len(kept) - asked.snapshots)}


TOOLS: dict[str, tuple[type[Arguments], Callable[[Caller, Any], Awaitable[Any]]]] = {
    "describe_index": (Arguments, describe_index),
    "get_row": (GetRow, get_row),
    "get_rows": (GetRows, get_rows),
    "list_keys": (ListKeys, list_keys),
    "key_history": (KeyHistory, key_history),
}


def mcp_server(app: FastAPI, token: str | None = None) -> Server[Any]:
    """The MCP server of an app. Over HTTP each request has its own token; else all calls have the given one."""

    def caller(context: ServerRequestContext[Any, Any]) -> Caller:
        return Caller(app, context.request, token)

    async def list_tools(context: ServerRequestContext[Any, Any], params: object) -> ListToolsResult:
        try:
            known = await caller(context).known()
        except ToolFailed:  # as where the token is missing: each call says so
            known = []
        return ListToolsResult(tools=[_tool(name, known) for name in TOOLS])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            if params.name not in TOOLS:
                raise ToolFailed(f"there is no tool {params.name!r}; there are {', '.join(TOOLS)}")
            takes, tool = TOOLS[params.name]
            answer = await tool(caller(context), _converted(params.arguments or {}, takes))
        except ToolFailed as error:
            told = TextContent(type="text", text=str(error))
            return CallToolResult(content=[told], structured_content=error.members, is_error=True)
        told = TextContent(type="text", text=json.dumps(answer, ensure_ascii=False, separators=(",", ":")))
        return CallToolResult(content=[told], structured_content=answer)

    return Server(
        "gnomon",
        version=version("gnomon-index"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _converted(given: Mapping[str, Any], takes: type[Asked]) -> Asked:
    try:
        return msgspec.convert(given, takes)
    except msgspec.ValidationError as error:
        raise ToolFailed(f"arguments: {error}") from None


def _tool(name: str, known: list[dict[str, Any]]) -> Tool:
    """A tool with the JSON schema of its arguments, in which the indexes are named."""
    takes, function = TOOLS[name]
    made = msgspec.json.schema_components([takes])[1][takes.__name__]
    # Null is taken for an argument that is left out; a schema without it is easier to read.
    properties = {
        name: one["anyOf"][0] if one.get("default", ...) is None else one for name, one in made["properties"].items()
    }
    schema = {"type": "object", "properties": properties, "required": made["required"], "additionalProperties": False}
    if known:
        keys = "; ".join(f"{one['name']}: key {', '.join(one['keys'] or ['not known yet'])}" for one in known)
        described = f"The name of an index; {known[0]['name']} without it. {keys}."
        names = [one["name"] for one in known]
        properties["index"] = {"type": "string", "enum": names, "description": described}
    told = " ".join((function.__doc__ or "").split())
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    return Tool(name=name, description=told, input_schema=schema, annotations=hints)


class AgentsRoute:
    """Answers `POST /mcp`, as an ASGI application. It keeps no session: any worker answers any request."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._server, self._settings = mcp_server(app), settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Request(scope).headers.get("origin")
        if origin is not None and origin not in self._settings.cors_origins:
            # A page of another site could reach a server of this machine by a name that it points here.
            raise Forbidden(f"a page of {cut(origin)} may not ask; the setting cors_origins names those that may")
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, json_response=True, max_request_body_size=self._settings.max_body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def add_mcp(app: FastAPI, settings: Settings) -> None:
    """Put the route for agents on the app."""
    app.router.routes.append(Route(PATH, AgentsRoute(app, settings), methods=["POST"]))


def run_stdio(app: FastAPI, token: str | None) -> None:
    """Answer calls from standard input until it ends. The indexes are followed meanwhile."""

    async def serve() -> None:
        server = mcp_server(app, token)
        async with app.router.lifespan_context(app), stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
