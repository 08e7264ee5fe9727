"""The routes of `gnomon catalog`: Iceberg's REST protocol, passed on to the catalog behind it, but for scan planning.

`GET /v1/config` also names the routes of plans; `loadTable` tells clients of an indexed table to let the catalog plan
their scans. A plan needs the table's metadata, which the catalog behind gives for the caller's own credentials: who may
not load a table cannot plan a scan of it."""

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gnomon.base.errors import GnomonError
from gnomon.service.access import asker_of
from gnomon.service.api import Service
from gnomon.service.catalog.counts import PlanCounts
from gnomon.service.catalog.filters import InvalidPlan
from gnomon.service.catalog.local_catalog import LocalCatalog
from gnomon.service.catalog.planning import Plan, Planner, PlanRequest, PlanTask, TableIndex
from gnomon.service.catalog.upstream import (
    SUBMIT,
    LoadedTable,
    RestUpstream,
    Upstream,
    UpstreamError,
    parsed,
    table_place,
    with_members,
)
from gnomon.service.errors import Overloaded, TooLarge
from gnomon.service.http import read_body
from gnomon.shadow import OpenIndex
from gnomon.shadow.errors import OutOfTime, StorageError, Unreachable
from gnomon.shadow.storage import storage_at, within

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
TABLE = re.compile(r"/v1/(?:[^?]+/)?namespaces/[^/]+/tables/[^/]+")
DOTS = re.compile(r"(?:^|/|%2f)(?:\.|%2e){1,2}(?:/|%2f|$)", re.IGNORECASE)
KEPT = 1000  # metadata files of which is known whether plans can read them
MODE, SERVER = "scan-planning-mode", "server"
PLANS = (
    SUBMIT,
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
)
# What clients take for granted where a catalog names no endpoints: the REST catalog specification, CatalogConfig.
DEFAULT_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)
PYICEBERG = "pyiceberg/"  # its name in the header User-Agent: it takes the mode of a table from the catalog's settings

T = TypeVar("T")

logger = logging.getLogger("gnomon.service")


class _TasksRequest(msgspec.Struct, rename="kebab"):
    plan_task: str


class CatalogRoutes:
    """The handlers, and what they share."""

    def __init__(self, service: Service, counts: PlanCounts, has_tokens: bool) -> None:
        self._service = service
        self._settings = service.settings
        self._counts = counts
        self.upstream: Upstream = (
            LocalCatalog(service.settings)
            if service.settings.catalog is not None
            else RestUpstream(service.settings, forget_authorization=has_tokens)
        )
        self._planner = Planner(service.settings.cache_bytes)
        self._read: dict[str | None, bool] = {}  # by metadata file: whether plans can read it
        self._threads = CapacityLimiter(service.settings.threads)

    def add_to(self, app: Starlette) -> None:
        """Put the routes on the app. A table may have any name, so each handler reads the path again."""
        for path, method, handler in (
            ("/v1/config", "GET", self.config),
            ("/v1/{table:path}/plan", "POST", self.plan),
            ("/v1/{table:path}/tasks", "POST", self.tasks),
            ("/v1/{table:path}/plan/{plan}", "GET", self.planned),
            ("/v1/{table:path}/plan/{plan}", "DELETE", self.cancel),
            ("/v1/{path:path}", "GET", self.load),
        ):
            app.router.routes.append(Route(path, _answered(handler), methods=[method]))
        others = [method for method in METHODS if method != "GET"]
        app.router.routes.append(Route("/v1/{path:path}", _answered(self.other), methods=others))

    async def other(self, request: Request) -> Response:
        """Any request that needs no index."""
        return await self.upstream.answer(request, _path(request))

    async def config(self, request: Request) -> Response:
        """The catalog's settings, with the routes of plans."""
        if request.method == "HEAD":
            return await self.other(request)
        answer, body = await self.upstream.whole_answer(request, _path(request))
        try:
            known: dict[str, Any] = msgspec.json.decode(body, type=dict)
        except (msgspec.DecodeError, RecursionError):
            return answer
        if answer.status_code != 200:
            return answer
        endpoints = known.get("endpoints") or DEFAULT_ENDPOINTS
        added: dict[str, Any] = {"endpoints": [*endpoints, *(one for one in PLANS if one not in endpoints)]}
        for name in ("overrides", "defaults"):
            address = (known.get(name) or {}).get("uri")
            if address is not None:  # clients that follow it would leave this service
                logger.warning("the catalog names another address, %s; clients are not told", address)
                known[name] = {key: value for key, value in known[name].items() if key != "uri"}
        if _is_pyiceberg(request):
            added["defaults"] = {**(known.get("defaults") or {}), MODE: SERVER}
        return _with_body(answer, msgspec.json.encode({**known, **added}))

    async def load(self, request: Request) -> Response:
        """GET of anything. The answer to loadTable of an indexed table says that this service plans its scans."""
        path = _path(request)
        if request.method == "HEAD" or not TABLE.fullmatch(path):
            return await self.upstream.answer(request, path)
        answer, body = await self.upstream.whole_answer(request, path)
        try:
            loaded = msgspec.json.decode(body, type=LoadedTable)
            uuid, location = table_place(loaded)
        except (msgspec.DecodeError, RecursionError):  # a refusal
            return answer
        indexes = self._indexes_of(uuid, location)
        if uuid is None or not any(_uuid_of(one.opened) == uuid for one in indexes):
            for one in indexes:
                self._counts.add_unused(one.name, "table", f"at {location} is another table now, with id {uuid}")
            return answer
        if not await to_thread.run_sync(self._is_read, loaded, limiter=self._threads):
            return answer
        return _with_body(answer, with_members(body, {"config": {MODE: SERVER}}))

    def _is_read(self, loaded: LoadedTable) -> bool:
        """Whether plans can read a table's metadata: clients would depend on it."""
        key = loaded.metadata_location
        if key is None or key not in self._read:
            try:
                parsed(loaded.metadata)
                is_read = True
            except UpstreamError as error:
                logger.warning("the table of %s is not planned: %s", key, error)
                is_read = False
            self._read = {**dict([*self._read.items()][1 - KEPT :]), key: is_read}
        return self._read[key]

    def _indexes_of(self, uuid: str | None, location: str) -> list[TableIndex]:
        """The open indexes of a table, and those of a table that lay in its place before."""
        opened = [TableIndex(served.place.name, served.index) for served in self._service.indexes if served.is_open]
        found = [one for one in opened if uuid is not None and _uuid_of(one.opened) == uuid]
        if not found:
            with suppress(GnomonError):  # a location that no store of Gnomon knows
                root = storage_at(location).root
                found = [one for one in opened if one.opened.spec.source.location == root]
        return found

    async def plan(self, request: Request) -> Response:
        """A plan. Always complete: no plan takes so long that a client should come again for it."""
        path = _table_of(request, "/plan")
        if path is None:
            return await self.other(request)
        body = await self._body(request)
        return await self._answer(request, path, body, partial(_decoded, body, PlanRequest))

    async def tasks(self, request: Request) -> Response:
        """A further range of a plan."""
        path = _table_of(request, "/tasks")
        if path is None:
            return await self.other(request)
        body = await self._body(request)
        return await self._answer(request, path, body, partial(_task_of, body))

    async def planned(self, request: Request) -> Response:
        """A plan that is not complete yet: of a catalog behind that plans itself."""
        if _table_of(request, f"/plan/{request.path_params['plan']}") is None:
            return await self.load(request)
        if await self.upstream.plans(request.scope["headers"]):
            return await self.other(request)
        what = "there is no such plan; every plan here is complete at once"
        raise UpstreamError(what, 404, "NoSuchPlanIdException")

    async def cancel(self, request: Request) -> Response:
        """The end of a plan. Those of this service hold nothing."""
        is_plan = _table_of(request, f"/plan/{request.path_params['plan']}") is not None
        if not is_plan or await self.upstream.plans(request.scope["headers"]):
            return await self.other(request)
        return Response(status_code=204)

    async def _body(self, request: Request) -> bytes:
        bodies, client = self._service.indexes.bodies, asker_of(request.scope).client
        body, hold = await read_body(request, self._settings.max_body_bytes, bodies, client)
        hold.close()
        return body

    async def _answer(
        self, request: Request, path: str, body: bytes, decoded: Callable[[], PlanRequest | PlanTask]
    ) -> Response:
        table = await self.upstream.table(path, request.scope["headers"])
        if isinstance(table, Response):
            return table
        indexes, nulls = self._indexes_of(str(table.table_uuid), table.location), not _is_pyiceberg(request)
        if not indexes and await self.upstream.plans(request.scope["headers"]):
            return await self.upstream.answer(request, _path(request), body)
        asked = decoded()
        task = asked if isinstance(asked, PlanTask) else None
        wanted = asked.request if isinstance(asked, PlanTask) else asked

        def work() -> tuple[Plan, bytes]:
            with within(self._settings.timeout_seconds):
                plan = self._planner.plan(table, path.rpartition("/tables/")[2], wanted, indexes, task, nulls)
                return plan, msgspec.json.encode(plan.body)

        plan, answer = await to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)
        self._counts.add(plan)
        return Response(answer, media_type="application/json")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidPlan(f"the body: {error}") from None
    except RecursionError:  # as Java's parser of JSON has it
        raise InvalidPlan("the filter is nested more than 1,000 levels deep; name many values by IN") from None


def _task_of(body: bytes) -> PlanTask:
    return PlanTask.of_token(_decoded(body, _TasksRequest).plan_task)


def _is_pyiceberg(request: Request) -> bool:
    return request.headers.get("user-agent", "").lower().startswith(PYICEBERG)


def _uuid_of(index: OpenIndex) -> str | None:
    table = index.view.snapshot.table
    return None if table is None else table.uuid


def _path(request: Request) -> str:
    """The path as it was sent, below the root path."""
    scope = request.scope
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(scope.get("root_path", "").rstrip("/"))


def _table_of(request: Request, ending: str) -> str | None:
    """The path of the table of a request for a plan; None for any other request."""
    path = _path(request)
    table = path.removesuffix(ending)
    return table if table != path and TABLE.fullmatch(table) else None


def _with_body(answer: Response, body: bytes) -> Response:
    answer.body = body
    answer.headers["content-length"] = str(len(body))
    return answer


def _answered(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, whose failures are answered in the form that clients of Iceberg read."""

    async def answer(request: Request) -> Response:
        if DOTS.search(_path(request)):  # the client to the catalog behind would resolve them
            return _error(400, "BadRequestException", "a path with . or .. as a part")
        try:
            return await handler(request)
        except UpstreamError as error:
            return _error(error.status, error.type, str(error))
        except TooLarge as error:
            return _error(413, "BadRequestException", str(error))
        except InvalidPlan as error:
            return _error(400, "BadRequestException", str(error))
        except Overloaded as error:
            return _error(503, "ServiceUnavailableException", str(error))
        except (StorageError, Unreachable, OutOfTime) as error:
            logger.error("a plan failed: %s: %s", type(error).__name__, error)
            return _error(503, "ServiceUnavailableException", str(error))
        except GnomonError as error:
            logger.error("a plan failed: %s: %s", type(error).__name__, error)
            return _error(500, "InternalServerError", str(error))
        except Exception:
            logger.exception("a request failed")
            return _error(500, "InternalServerError", "the service failed; its log says more")

    return answer


def _error(status: int, kind: str, what: str) -> Response:
    body = {"error": {"message": what, "type": kind, "code": status}}
    return Response(msgspec.json.encode(body), status, media_type="application/json")
