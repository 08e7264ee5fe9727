"""What is answered where. Handlers parse, hand the work to the service's threads, and return bytes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastapi import FastAPI
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from service import answers, models
from service.described import Descriptions, listed
from service.errors import BadRequest, NotReady, encode, target
from service.guard import charge_keys, check_index, may_ask, of_readiness
from service.indexes import Indexes
from service.openapi import BATCH, KEY, NAME, OPTIONS, problems
from service.readiness import readiness
from service.requests import no_others, parse_batch, path_key, query_options, read_body
from service.served import ServedIndex
from service.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """What the handlers of one app share: `app.state.service`."""

    settings: Settings
    indexes: Indexes
    descriptions: Descriptions = field(default_factory=Descriptions)

    async def run(
        self, work: Callable[Concatenate[ServedIndex, P], T], served: ServedIndex, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do blocking work for an index in the threads that are its own, in the context of this task, where its cost is
        noted. Overloaded and TookTooLong as of these."""
        return await served.threads.run(work, served, *args, **kwargs)


class KeyConvertor(Convertor[str]):
    """The rest of a path, whatever it holds: slashes, nothing, line ends. `requests.path_key` reads the key itself."""

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
    return indexes.named(name)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _found() -> Response:
    response = Response(media_type="application/json")
    del response.headers["content-length"]  # it would be that of the answer to a GET
    return response


async def get_row(request: Request) -> Response:
    """The rows of a one-column key. The key may hold slashes; percent-encode `?`, `#` and `%`."""
    service, key = _service(request), path_key(request.scope)
    options, others = query_options(request.scope)
    no_others(others)
    return _json(await service.run(answers.rows_of, _served(request), key, options))


async def head_row(request: Request) -> Response:
    """Whether a one-column key is there, from the index alone."""
    service, key = _service(request), path_key(request.scope)
    options, others = query_options(request.scope)
    no_others(others)
    await service.run(answers.has_rows, _served(request), key, options)
    return _found()


async def get_rows(request: Request) -> Response:
    """The rows of any key, by column name: `/rows?country=de&id=5`. `+` is a space; percent-encode a plus."""
    service = _service(request)
    options, key = query_options(request.scope)
    return _json(await service.run(answers.rows_of, _served(request), key, options))


async def head_rows(request: Request) -> Response:
    """Whether any key is there, by column name, from the index alone."""
    service = _service(request)
    options, key = query_options(request.scope)
    await service.run(answers.has_rows, _served(request), key, options)
    return _found()


async def post_rows(request: Request) -> Response:
    """The rows of many keys, in the order asked; keys may hold nulls. A failed key carries its error."""
    service = _service(request)
    options, others = query_options(request.scope)
    no_others(others)
    body = await read_body(request, service.settings.max_body_bytes)
    batch = parse_batch(body, service.settings.max_batch_keys)
    charge_keys(request, len(batch.keys))
    if batch.columns is not None:
        if options.columns is not None:
            raise BadRequest("columns is given twice, in the query and in the body")
        options = replace(options, columns=batch.columns)
    return _json(await service.run(answers.rows_of_each, _served(request), batch.keys, options, target(request)))


async def get_indexes(request: Request) -> Response:
    """The indexes of the service that the token may ask, the default first."""
    indexes = _service(request).indexes
    shown = [served for served in indexes if may_ask(request.scope, served.place.name)]
    return _json(encode({"indexes": [listed(served, served is indexes.default) for served in shown]}))


async def get_index(request: Request) -> Response:
    """What an index is of, what its snapshot holds, and how its rows lie in partitions and buckets."""
    service, served = _service(request), _served(request)
    told = await service.run(service.descriptions.of, served, service.settings, served is service.indexes.default)
    return _json(encode(told))


async def healthz(request: Request) -> Response:
    """The process answers."""
    return _json(b'{"alive": true}')


async def readyz(request: Request) -> Response:
    """What is served of each index, and what its source holds beyond; 503 while none could be opened yet."""
    tokens = request.app.state.guard.tokens
    try:
        told = readiness(_service(request).indexes)
    except NotReady as error:
        error.members = of_readiness(request.scope, error.members, tokens)
        raise
    return _json(encode(of_readiness(request.scope, told, tokens)))


def _without_body(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The HEAD of a GET: some probes ask so."""

    async def head(request: Request) -> Response:
        await handler(request)
        return _found()

    return head


# Routes whose HEAD does what their GET does, and leaves the body out.
BODILY = {"/indexes": get_indexes, "/indexes/{name}": get_index, "/healthz": healthz, "/readyz": readyz}


def add_routes(app: FastAPI) -> None:
    """Put every route on the app."""

    def add(path: str, method: str, handler: Callable[..., Any], model: Any, failures: Any, **extra: Any) -> None:
        responses = {200: {"model": model} if model else {"description": "Found"}, **failures}
        app.add_api_route(
            path, handler, methods=[method], response_model=None, responses=responses, openapi_extra=extra or None
        )

    failures, no_source, batch = problems(400, 404, 409, 503), problems(400, 404, 503), problems(400, 404, 413, 503)
    for prefix, named in (("", []), ("/indexes/{name}", [NAME])):
        rows, row, options = f"{prefix}/rows", f"{prefix}/rows/{{key:key}}", [*named, *OPTIONS]
        add(rows, "GET", get_rows, models.RowsAnswer, failures, parameters=options)
        add(rows, "HEAD", head_rows, None, no_source, parameters=options)
        add(rows, "POST", post_rows, models.BatchAnswer, batch, parameters=options, requestBody=BATCH)
        add(row, "GET", get_row, models.RowsAnswer, failures, parameters=[KEY, *options])
        add(row, "HEAD", head_row, None, no_source, parameters=[KEY, *options])
    add("/indexes", "GET", get_indexes, models.IndexList, {})
    add("/indexes/{name}", "GET", get_index, models.IndexDescription, problems(404, 503), parameters=[NAME])
    add("/healthz", "GET", healthz, models.Liveness, {})
    add("/readyz", "GET", readyz, models.Readiness, problems(503))
    for path, handler in BODILY.items():
        app.add_api_route(path, _without_body(handler), methods=["HEAD"], include_in_schema=False)
