"""Tools for agents: the Model Context Protocol (MCP), over HTTP at `/mcp` and over standard input and output.

A tool makes requests to the routes of the same app, inside the process. So tokens, hidden columns, limits, rates, the
log and the metrics are those of the routes. A call over HTTP is one request, already admitted; a tool that makes more
requests has each of them counted."""

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import anyio
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    JSONRPCRequest,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gnomon.service.access import asker_of
from gnomon.service.api import Service
from gnomon.service.errors import Forbidden, TooLarge, problem
from gnomon.service.http import cut, read_body
from gnomon.service.settings import Settings

PATH = "/mcp"
MOST_BYTES = 1 << 20  # of an answer: an agent reads all of it
FEW_ROWS, PAGE_ROWS = 10, 100  # where a call gives no limit: of a key, of a page
COMPARED_ROWS = 1000  # of a key in two snapshots
POLL_SECONDS = 0.01
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
    dict[str, str | Annotated[list[str], msgspec.Meta(min_length=1)]],
    msgspec.Meta(description="Partition columns and their values: only these partitions are searched."),
]


class _ToolFailed(Exception):
    """A call cannot be answered. The text, and the members of the problem if the routes gave one, are for the agent."""

    def __init__(self, what: str, members: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.members = members


class Arguments(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The arguments of every tool."""

    index: (
        Annotated[str, msgspec.Meta(min_length=1, description="The name of an index; the default index without it.")]
        | None
    ) = None


class OfRows(Arguments, kw_only=True):
    """The arguments of the tools that return the rows of keys."""

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

    def __init__(self, app: Starlette, request: Request | None, token: str | None) -> None:
        self._app = app
        scope: Mapping[str, Any] = {"headers": [(b"authorization", f"Bearer {token}".encode())] if token else []}
        self._scope = scope if request is None else request.scope
        self._admitted = {"asker": request.scope["state"]["asker"]} if request is not None else {}
        self._until = time.monotonic() + self._service.settings.timeout_seconds

    @property
    def _service(self) -> Service:
        service: Service = self._app.state.service
        return service

    async def ask(self, method: str, path: str, query: Iterable[tuple[str, str]] = (), body: object = None) -> Any:
        """The JSON of an answer. _ToolFailed for an answer that is a problem, or that is too large, and where the call
        has taken its time already."""
        if time.monotonic() > self._until:
            raise _ToolFailed(
                "the call takes longer than a request may (setting timeout_seconds); ask for less at a time"
            )
        root, content = self._scope.get("root_path", ""), json.dumps(body).encode() if body is not None else b""
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

    async def default(self) -> str:
        """The first index that the caller may ask. _ToolFailed where there is none."""
        if not self._app.state.guard.tokens.needed:
            return self._service.indexes.default.place.name
        known = await self.known()
        if not known:
            raise _ToolFailed("this token may ask no index that is served here")
        name: str = known[0]["name"]
        return name


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
            raise _too_large(self._size)
        found = msgspec.json.decode(bytes(self._body))
        if self._status >= 400:
            raise _ToolFailed(f"{found['title']}: {found['detail']}", found)
        return found


def _too_large(size: int) -> _ToolFailed:
    return _ToolFailed(
        f"the answer has {size:,} bytes or more; an agent gets at most {MOST_BYTES:,}: ask for fewer columns, fewer "
        "keys, or a smaller limit"
    )


def _route(index: str | None, path: str = "") -> str:
    return f"/indexes/{quote(index or '', safe='')}{path}"


def _options(**options: Any) -> list[tuple[str, str]]:
    """The options of a query; those that are None or False are left out."""
    pairs: list[tuple[str, str]] = []
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
    return await caller.ask("GET", "/indexes" if asked.index is None else _route(asked.index))


async def get_row(caller: Caller, asked: GetRow) -> Any:
    """The rows of one key. The count is 0 where no row has the key."""
    answer = await _rows(caller, asked, [asked.key])
    [found] = answer.pop("results")
    _check(found)
    return {**found, **answer}


def _check(result: dict[str, Any], wrong_keys_only: bool = False) -> None:
    """_ToolFailed for the result of a key that failed."""
    error = result.get("error")
    if error is not None and (error["status"] == 400 or not wrong_keys_only):
        raise _ToolFailed(f"{error['title']}: {error['detail']}", error)


async def get_rows(caller: Caller, asked: GetRows) -> Any:
    """The rows of many keys in one call, in the order of the keys. A key that fails has an `error` in its result."""
    return await _rows(caller, asked, asked.keys)


async def _rows(caller: Caller, asked: OfRows, keys: list[Any]) -> Any:
    options = _options(where=asked.where, limit=asked.limit, snapshot=asked.snapshot)
    body = {"keys": keys} if asked.columns is None else {"keys": keys, "columns": asked.columns}
    return await caller.ask("POST", _route(asked.index, "/rows"), options, body)


async def list_keys(caller: Caller, asked: ListKeys) -> Any:
    """The keys that begin with a prefix, or lie in a range, in key order and page by page; with `columns`, more of
    their rows. Without prefix, from and to: all keys. Another page follows where the answer has `after`."""
    described = await caller.ask("GET", _route(asked.index))
    columns = [one["name"] for one in described["columns"]]
    keys = [key["name"] for key in described["keys"]]  # a column within another one is returned with all of that
    wanted = [name if name in columns else name.partition(".")[0] for name in keys] + (asked.columns or [])
    wanted = list(dict.fromkeys(wanted))
    has_comma = any("," in name for name in wanted)  # the query joins names by commas
    options = _options(
        columns=None if has_comma else ",".join(wanted) or None,
        prefix=asked.prefix,
        **{"from": asked.low, "to": asked.high},
        inclusive=asked.inclusive,
        where=asked.where,
        limit=asked.limit,
        after=asked.after,
        snapshot=asked.snapshot,
    )
    try:
        options.append(("_reverse", str(asked.reverse).lower()))
        answer = await caller.ask("GET", _route(asked.index, "/rows"), options)
    except _ToolFailed as error:
        if error.members is None or error.members["title"] != "Key not found":
            raise
        return {"rows": [], "count": 0, "snapshot": error.members["snapshot"]}
    if has_comma:
        unknown = [name for name in wanted if name not in columns]
        if unknown:
            raise _ToolFailed(f"the source has no column {', '.join(unknown)}; it has {', '.join(columns)}")
        answer["rows"] = [{name: row[name] for name in wanted} for row in answer["rows"]]
    following = answer.pop("next", None)
    return answer if following is None else {**answer, "after": parse_qs(urlsplit(following).query)["_after"][0]}


async def key_history(caller: Caller, asked: KeyHistory) -> Any:
    """The rows of a key now and in the kept snapshots of the index: periods in which its rows stayed the same, the
    newest first. `until` is when the next snapshot was committed; the newest period has none. A period without
    snapshots has rows of a table version that no snapshot covers yet."""
    kept = (await caller.ask("GET", _route(asked.index)))["snapshots"][::-1]
    history = _History(asked.limit)
    now = await _rows(caller, OfRows(index=asked.index, columns=asked.columns, limit=COMPARED_ROWS), [asked.key])
    [found] = now["results"]
    _check(found, wrong_keys_only=True)
    history.add(found, None, now.get("table_version"))
    until: str | None = None
    for one in kept[: asked.snapshots]:
        of_snapshot = OfRows(index=asked.index, columns=asked.columns, limit=COMPARED_ROWS, snapshot=one["snapshot"])
        try:
            [found] = (await _rows(caller, of_snapshot, [asked.key]))["results"]
        except _ToolFailed as error:  # as of a snapshot that was removed just now
            if error.members is None or error.members["status"] in (401, 403, 429):
                raise
            found = {"error": error.members}
        history.add(found, one, one.get("table_version"), until)
        until = one.get("committed_at")
    return {"key": asked.key, "periods": history.periods, "snapshots_not_searched": max(0, len(kept) - asked.snapshots)}


class _History:
    """The periods of a key, the newest first, with up to `limit` rows of each."""

    def __init__(self, limit: int) -> None:
        self.periods: list[dict[str, Any]] = []
        self._limit, self._found, self._size = limit, dict[str, Any](), 0

    def add(
        self, result: dict[str, Any], snapshot: dict[str, Any] | None, version: Any, until: str | None = None
    ) -> None:
        """Add what was found in a snapshot, or (None) now. _ToolFailed beyond the bytes of an answer."""
        found: dict[str, Any] = {name: result[name] for name in ("count", "rows", "error") if name in result}
        of_snapshot = {"first_snapshot": None, "last_snapshot": None, "from": None}
        if snapshot is not None:
            of_snapshot = dict.fromkeys(("first_snapshot", "last_snapshot"), snapshot["snapshot"])
            of_snapshot["from"] = snapshot.get("committed_at")
        if self.periods and found == self._found:
            last = self.periods[-1]["last_snapshot"]
            self.periods[-1] |= of_snapshot if last is None else {**of_snapshot, "last_snapshot": last}
            return
        self._found = found
        shown = {**found, "rows": found["rows"][: self._limit]} if "rows" in found else found
        if found.get("count", 0) > COMPARED_ROWS:
            shown["compared_rows"] = COMPARED_ROWS  # more of them may have changed
        self._size += len(json.dumps(shown))
        if self._size > MOST_BYTES:
            raise _too_large(self._size)
        self.periods.append({**of_snapshot, "until": until, "table_version": version, **shown})


TOOLS: dict[str, tuple[type[Arguments], Callable[[Caller, Any], Awaitable[Any]]]] = {
    "describe_index": (Arguments, describe_index),
    "get_row": (GetRow, get_row),
    "get_rows": (GetRows, get_rows),
    "list_keys": (ListKeys, list_keys),
    "key_history": (KeyHistory, key_history),
}


def mcp_server(app: Starlette, token: str | None = None) -> Server[Any]:
    """The MCP server of an app. Over HTTP each request has its own token; else all calls have the given one."""

    async def list_tools(context: ServerRequestContext[Any, Any], params: object) -> ListToolsResult:
        try:
            known = await Caller(app, context.request, token).known()
        except _ToolFailed:  # as where the token is missing: each call says so
            known = []
        return ListToolsResult(tools=[_tool(name, known) for name in TOOLS])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            if params.name not in TOOLS:
                raise _ToolFailed(f"there is no tool {params.name!r}; there are {', '.join(TOOLS)}")
            takes, tool = TOOLS[params.name]
            asked, caller = _converted(params.arguments or {}, takes), Caller(app, context.request, token)
            if asked.index is None and tool is not describe_index:
                asked.index = await caller.default()
            answer = await tool(caller, asked)
        except _ToolFailed as error:
            told = TextContent(type="text", text=str(error))
            return CallToolResult(content=[told], structured_content=error.members, is_error=True)
        except Exception as error:  # noqa: BLE001 its text is for the log alone
            members = problem(error, PATH, lambda: app.state.service.indexes.roots)
            told = TextContent(type="text", text=f"{members['title']}: {members['detail']}")
            return CallToolResult(content=[told], structured_content=members, is_error=True)
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
        raise _ToolFailed(f"arguments: {error}") from None


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

    def __init__(self, app: Starlette, settings: Settings) -> None:
        self._server, self._settings = mcp_server(app), settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Request(scope).headers.get("origin")
        if origin is not None and origin not in self._settings.cors_origins:
            # A page of another site could reach a server of this machine by a name that it points here.
            raise Forbidden(f"a page of {cut(origin)} may not ask; the setting cors_origins names those that may")
        bodies, client = scope["app"].state.service.indexes.bodies, asker_of(scope).client
        try:
            content, held = await read_body(Request(scope, receive), MOST_BYTES, bodies, client)
        except TooLarge:
            raise TooLarge(f"the body is larger than {MOST_BYTES:,} bytes, the most that an agent may send") from None
        body: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def replayed() -> Message:
            return body.pop() if body else await receive()

        manager = StreamableHTTPSessionManager(self._server, stateless=True, json_response=True)
        try:
            async with manager.run():
                await manager.handle_request(scope, replayed, send)
        finally:
            held.close()


def add_mcp(app: Starlette, settings: Settings) -> None:
    """Put the route for agents on the app."""
    app.router.routes.append(Route(PATH, AgentsRoute(app, settings), methods=["POST"]))


def run_stdio(app: Starlette, token: str | None) -> None:
    """Answer calls from standard input until it ends, and then those that wait for an answer. The indexes are followed
    meanwhile. It also ends where nobody reads the answers."""

    async def serve() -> None:
        server = mcp_server(app, token)
        async with (
            app.router.lifespan_context(app),
            stdio_server() as (read, write),
            anyio.create_task_group() as tasks,
        ):
            to_server, calls = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            to_client, answers = anyio.create_memory_object_stream[SessionMessage](0)
            waiting = set[Any]()

            async def pass_calls() -> None:
                async with to_server:
                    async for message in read:
                        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
                            waiting.add(message.message.id)
                        await to_server.send(message)
                    while waiting:  # the server drops calls when its input ends
                        await anyio.sleep(POLL_SECONDS)

            async def pass_answers() -> None:
                async with write:
                    async for message in answers:
                        await write.send(message)
                        waiting.discard(getattr(message.message, "id", None))

            tasks.start_soon(pass_calls)
            tasks.start_soon(pass_answers)
            await server.run(calls, to_client, server.create_initialization_options())
            to_client.close()

    try:
        anyio.run(serve)
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
