"""The routes. Handlers parse a request, pass the work to the threads of an index, and return bytes."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec.structs import asdict
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from gnomon.service.access import asker_of, charge_keys, check_index, may_ask, of_readiness
from gnomon.service.api import shapes
from gnomon.service.api.answers import BATCH, ROWS, BatchPieces, KeyAnswer, has_rows, rows_of_each
from gnomon.service.api.describe import Descriptions, listed, readiness
from gnomon.service.api.openapi import (
    FOUND,
    GUARDED,
    KEY,
    KEY_COLUMNS,
    NAME,
    OF_INDEX,
    OF_KEYS,
    OF_ROWS,
    OPTION_PARAMETERS,
    RANGE_PARAMETERS,
    DocumentedRoute,
    answer,
    batch,
    document,
    of_either,
    operation,
)
from gnomon.service.api.pages import OF_NEWEST, OF_SNAPSHOT
from gnomon.service.api.ranges import RANGE, has_page, page_of, page_rows
from gnomon.service.api.responses import (
    JSON,
    VARY,
    HeldResponse,
    PiecesResponse,
    Sealed,
    chosen,
    chosen_encoding,
    sealed,
)
from gnomon.service.errors import BadRequest, KeyNotFound, NoSuchIndex, NotReady, encode
from gnomon.service.http import (
    BatchRequest,
    Options,
    cut,
    may_lack_slashes,
    next_target,
    options_alone,
    parse_batch,
    path_key,
    query_options,
    read_body,
)
from gnomon.service.indexes import Indexes, ServedIndex
from gnomon.service.memory import Hold
from gnomon.service.settings import Settings

Handler = Callable[[Request], Awaitable[Response]]

# Memory that a request takes before its work begins. It grows when rows are found that need more (`query.PAGE_BYTES`).
SINGLE_BYTES, BATCH_BYTES = 8 << 20, 32 << 20
FEW_KEYS = 10  # a batch of at most this many keys uses the threads of single keys
SHORT_BYTES = 4096  # of a path and query whose key the event loop may read
SMALL_BODY = 2048  # bytes that are parsed where the event loop runs


@dataclass(frozen=True)
class Service:
    """What the handlers of one app share: `app.state.service`."""

    settings: Settings
    indexes: Indexes
    descriptions: Descriptions = field(default_factory=Descriptions)
    documents: dict[str, bytes] = field(default_factory=dict)  # `/openapi.json`, by the prefix of a proxy or mount


class KeyConvertor(Convertor[str]):
    """The rest of a path, with any characters: it may be empty, or have slashes or line ends. `requests.path_key` reads
    the key itself."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", KeyConvertor())


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _served(request: Request) -> ServedIndex:
    """The index that the path names, or the default."""
    indexes, name = _service(request).indexes, request.path_params.get("name")
    check_index(request.scope, name, indexes.default.place.name)
    try:
        return indexes.named(name)
    except NoSuchIndex:
        known = [served.place.name for served in indexes if may_ask(request.scope, served.place.name)]
        there = f"there are {', '.join(known)}" if known else "there is none that this token may ask"
        raise NoSuchIndex(f"there is no index of this name; {there}") from None


def _json(value: object) -> Response:
    return Response(encode(value), media_type=JSON)


def _bodiless(response: Response) -> Response:
    """The answer to a HEAD."""
    response.body = b""
    del response.headers["content-length"]  # it would be that of the answer to a GET
    return response


def _negotiated(request: Request) -> str:
    return chosen(request.headers.getlist("accept"))


def _encoding(request: Request) -> str:
    return chosen_encoding(request.headers.getlist("accept-encoding"))


def _key_of_path(request: Request) -> tuple[str, Options]:
    return path_key(request.scope), options_alone(request.scope)


@contextmanager
def _advice_on_slashes(request: Request, key: str) -> Iterator[None]:
    """Extend the text of KeyNotFound if a proxy may have merged slashes of the key in the path."""
    try:
        yield
    except KeyNotFound as error:
        if not may_lack_slashes(request.scope, key):
            raise
        raise KeyNotFound(
            f"{error}. The key came as {cut(key)}, without two slashes in a row: if it was sent with two, a proxy has "
            f"merged them; ask in the query, like /rows?{next(iter(error.members['key']), 'column')}=VALUE",
            **error.members,
        ) from None


def _is_short(request: Request) -> bool:
    """Whether the key takes little time to read."""
    scope = request.scope
    return len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) <= SHORT_BYTES


async def _rows_of(request: Request, key: object, options: Options) -> Response:
    media_type, served, client = _negotiated(request), _served(request), asker_of(request.scope).client
    query = KeyAnswer(served, media_type, key, options, _encoding(request))
    hold = served.threads.hold_at_once(client, SINGLE_BYTES) if _is_short(request) else None
    ready = None
    if hold is not None:
        try:
            ready = query.at_once(hold)
        finally:
            if ready is None:
                hold.close()
    answer, hold = (ready, hold) if ready and hold else await served.threads.work(query.made, client, SINGLE_BYTES)
    return _conditional(request, answer, hold, options, media_type)


def _conditional(
    request: Request, answer: Sealed, hold: Hold, options: Options, media_type: str, next_page: str | None = None
) -> Response:
    """The answer to a GET for rows; 304 if the client has it."""
    headers = answer.headers | (OF_SNAPSHOT if options.snapshot is not None else OF_NEWEST)
    if next_page is not None:
        headers["link"] = f'<{next_page}>; rel="next"'
    if answer.is_known(request):
        hold.close()
        return Response(status_code=304, headers=headers)
    return HeldResponse(answer.body, hold, headers, media_type)


async def _page_of(request: Request, options: Options) -> Response:
    media_type, served, client = _negotiated(request), _served(request), asker_of(request.scope).client
    charge_keys(request, page_rows(served, options))
    following = partial(next_target, request.scope)
    page = partial(page_of, served, media_type, options, _encoding(request), following)
    made, hold = await served.batch_threads.work(page, client, BATCH_BYTES)
    return _conditional(request, made.answer, hold, options, media_type, made.next)


async def _has_rows(request: Request, key: object, options: Options) -> Response:
    media_type, served, client = _negotiated(request), _served(request), asker_of(request.scope).client
    if options.range is not None:
        _, hold = await served.batch_threads.work(partial(has_page, served, options), client, BATCH_BYTES)
    else:
        _, hold = await served.threads.work(partial(has_rows, served, key, options), client, SINGLE_BYTES)
    hold.close()
    return _bodiless(Response(b"", headers=VARY, media_type=media_type))


async def get_row(request: Request) -> Response:
    """Returns the rows of a key that has one column."""
    key, options = _key_of_path(request)
    with _advice_on_slashes(request, key):
        return await _rows_of(request, key, options)


async def head_row(request: Request) -> Response:
    """Checks whether a key of one column exists. This reads only the index, not the source."""
    key, options = _key_of_path(request)
    with _advice_on_slashes(request, key):
        return await _has_rows(request, key, options)


async def get_rows(request: Request) -> Response:
    """Returns the rows of a key that is given by its column names: `/rows?country=de&id=5`. Without a key, but with an
    option of a range (`_prefix`, `_from`, `_to`, `_inclusive`, `_reverse`, `_after`), returns the rows of a range of
    keys, in key order, page by page: `/rows?_prefix=de&_limit=20`.

    In the query `+` means a space; write `%2B` for a plus sign."""
    options, key = query_options(request.scope)
    if options.range is not None:
        return await _page_of(request, options)
    return await _rows_of(request, key, options)


async def head_rows(request: Request) -> Response:
    """Checks whether a key exists that is given by its column names, or whether a range has a row. This reads only the
    index, not the source."""
    options, key = query_options(request.scope)
    return await _has_rows(request, key, options)


async def post_rows(request: Request) -> Response:
    """Returns the rows of many keys, in the order of the keys in the request. A key may contain nulls.

    In JSON a key that fails has its error in its result, and all other keys are answered. In Arrow one key that fails
    makes the whole batch fail."""
    service, media_type = _service(request), _negotiated(request)
    options = options_alone(request.scope)
    served, client = _served(request), asker_of(request.scope).client
    content, held = await read_body(request, service.settings.max_body_bytes, service.indexes.bodies, client)
    try:
        body = await _parsed(served, content, service.settings.max_batch_keys)
        del content
        charge_keys(request, len(body.keys))
        options = _with_columns(options, body.columns)
        is_short_batch = len(body.keys) <= FEW_KEYS
        threads, size = (served.threads, SINGLE_BYTES) if is_short_batch else (served.batch_threads, BATCH_BYTES)
        encoding = _encoding(request)
        if media_type != JSON:
            table = partial(rows_of_each, served, media_type, body.keys, options)
            answer, hold = await threads.work(lambda hold: sealed(table(hold), encoding, hold), client, size)
            return HeldResponse(answer.body, hold, answer.headers, media_type)
        is_gzip = encoding == "gzip" and len(body.keys) > FEW_KEYS
        headers = VARY | ({"content-encoding": "gzip"} if is_gzip else {})
        pieces = BatchPieces(served, body.keys, options, request.scope["path"], is_gzip)  # the path without the query
        more = partial(threads.work, pieces.piece, client, size)
        first = await more()
        if pieces.is_whole:
            return HeldResponse(*first, headers, media_type)
        return PiecesResponse(first, pieces, more, held.moved(), headers, media_type)
    finally:
        held.close()


async def _parsed(served: ServedIndex, content: bytes, most_keys: int) -> BatchRequest:
    """The batch in a body. A large one is parsed in a thread: that may take long."""
    if len(content) <= SMALL_BODY:
        return parse_batch(content, most_keys)
    return await served.batch_threads.run(parse_batch, content, most_keys)


def _with_columns(options: Options, columns: list[str] | None) -> Options:
    """The options of a batch, whose columns may stand in its body."""
    if columns is None:
        return options
    if options.columns is not None:
        raise BadRequest("the columns are given twice, in the query and in the body")
    return replace(options, columns=columns)


async def get_indexes(request: Request) -> Response:
    """Lists the indexes that the token may read. The default index comes first."""
    indexes = _service(request).indexes
    shown = [served for served in indexes if may_ask(request.scope, served.place.name)]
    root = request.scope.get("root_path", "").rstrip("/")
    return _json(shapes.IndexList([listed(served, served is indexes.default, root) for served in shown]))


async def get_index(request: Request) -> Response:
    """Describes one index: its key, its columns, its newest snapshot, and the rows of each partition and bucket."""
    service, served = _service(request), _served(request)
    is_default = served is service.indexes.default
    description = await served.threads.run(service.descriptions.of, served, service.settings, is_default)
    return _json(description)


async def healthz(request: Request) -> Response:
    """Checks whether the process answers."""
    return _json(shapes.Liveness())


async def readyz(request: Request) -> Response:
    """Returns the state of each index: its snapshot, and the number of source files that the snapshot does not cover.

    The status is 503 as long as no index is open."""
    tokens = request.app.state.guard.tokens
    try:
        state = asdict(readiness(_service(request).indexes))
    except NotReady as error:
        error.members = of_readiness(request.scope, error.members, tokens)
        raise
    if request.app.state.plans is not None:  # of a catalog
        for name, why in request.app.state.plans.trouble.items():
            state["indexes"] = {**state["indexes"], name: {**asdict(state["indexes"][name]), "not_planned_by": why}}
    return _json(of_readiness(request.scope, state, tokens))


def _without_body(handler: Handler) -> Handler:
    """The handler of HEAD for a GET whose answer costs little."""

    async def head(request: Request) -> Response:
        return _bodiless(await handler(request))

    return head


async def openapi(request: Request) -> Response:
    """The document of the routes."""
    service, root_path = _service(request), request.scope.get("root_path", "").rstrip("/")
    if root_path not in service.documents:
        service.documents[root_path] = encode(document(request.app.routes, service.settings, root_path))
    return Response(service.documents[root_path], media_type=JSON)


def _add(app: Starlette, path: str, method: str, handler: Handler, told: dict[str, Any]) -> None:
    app.router.routes.append(DocumentedRoute(path, method, handler, told))


def _add_both(app: Starlette, path: str, handler: Handler, name: str, tag: str, model: Any, *told: Any) -> None:
    _add(app, path, "GET", handler, operation(f"get{name}", tag, answer(model, path), *told))
    _add(app, path, "HEAD", _without_body(handler), operation(f"head{name}", tag, FOUND, *told))


def add_probes(app: Starlette) -> None:
    """Put the routes for health checks on the app."""
    _add_both(app, "/healthz", healthz, "Healthz", "operations", shapes.Liveness)
    _add_both(app, "/readyz", readyz, "Readyz", "operations", shapes.Readiness)


def add_routes(app: Starlette) -> None:
    """Put every route on the app. The most frequent comes first, since routes are tried in this order."""
    add, add_both = partial(_add, app), partial(_add_both, app)
    for prefix, of, names in (("", "", []), ("/indexes/{name}", "Index", [NAME])):
        rows, row = f"{prefix}/rows", f"{prefix}/rows/{{key}}"
        by_name = [*names, KEY_COLUMNS, *OPTION_PARAMETERS, *RANGE_PARAMETERS]
        by_path = [*names, KEY, *OPTION_PARAMETERS]
        of_row, of_batch = answer(shapes.RowsAnswer, row, ROWS), answer(shapes.BatchAnswer, rows, BATCH)
        of_rows = of_either(answer(shapes.RowsAnswer, rows, ROWS), answer(shapes.RangeAnswer, rows, RANGE))
        keyed = f"{prefix}/rows/{{key:key}}"
        add(keyed, "GET", get_row, operation(f"get{of}Row", "rows", of_row, OF_ROWS, by_path, has_etag=True))
        add(keyed, "HEAD", head_row, operation(f"head{of}Row", "rows", FOUND, OF_KEYS, by_path))
        add(rows, "GET", get_rows, operation(f"get{of}Rows", "rows", of_rows, OF_ROWS, by_name, has_etag=True))
        add(rows, "HEAD", head_rows, operation(f"head{of}Rows", "rows", FOUND, OF_KEYS, by_name))
        by_body = [*names, *OPTION_PARAMETERS]
        add(rows, "POST", post_rows, operation(f"post{of}Rows", "rows", of_batch, OF_ROWS, by_body, batch(rows)))
    add_both("/indexes", get_indexes, "Indexes", "indexes", shapes.IndexList, GUARDED)
    add_both("/indexes/{name}", get_index, "Index", "indexes", shapes.IndexDescription, OF_INDEX, [NAME])
    add_probes(app)
    app.add_route("/openapi.json", openapi)
