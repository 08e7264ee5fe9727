"""The application: opens the indexes, and adds routes, layers and error handlers."""

import atexit
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service import logs
from gnomon.service.access import Guard, GuardedApp
from gnomon.service.api import CORS, Service, add_pages, add_probes, add_routes, origins
from gnomon.service.costs import KeylessSpans
from gnomon.service.errors import TABLE, problem_response
from gnomon.service.http import route_path
from gnomon.service.indexes import Indexes
from gnomon.service.logs import AccessLog, Lines
from gnomon.service.metrics import CONTENT_TYPE, Following, Metrics, Slot, WatchedApp
from gnomon.service.settings import Settings, load_settings
from gnomon.shadow import UsageError

# Settings of the server of `gnomon serve`; another server has options of its own for them.
OF_OUR_SERVER = ("host", "port", "workers", "max_connections", "read_seconds", "idle_seconds", "shutdown_seconds")
OF_TLS = ("tls_certificate", "tls_key")

logger = logging.getLogger("gnomon.service")


def create_app(
    settings: Settings, patient: bool = False, *, slot: Slot | None = None, lines: Lines | None = None
) -> Starlette:
    """The application that serves the indexes of the settings. It opens them, and raises what
    `gnomon.service.indexes.Indexes` raises.

    `slot` is the place of this process among several workers; `lines` takes the access log, if any. All requests, also
    failed ones, pass the layers around the routes, the outermost first. The app is made with them, so that the layer of
    an instrumentation lies around them, whenever it is added: they remove keys from its spans."""
    guard, may_read = Guard(settings, at_start=not patient), origins(settings)  # opening the indexes takes longer
    service = Service(settings, Indexes(settings, patient))
    guard.tokens.check_names([served.place.name for served in service.indexes])
    # A catalog needs its extra.
    plans = import_module("gnomon.service.catalog").PlanCounts() if settings.is_catalog else None
    dropped = partial(getattr, lines, "dropped", 0)
    metrics = Metrics(service, slot, dropped, guard.tokens, () if plans is None else (plans,))
    log = AccessLog(lines, settings.log_keys) if settings.access_log and lines is not None else None
    following = Following(service, metrics, guard.tokens)
    layers = [
        Middleware(WatchedApp, service=service, metrics=metrics, log=log, following=following),
        *([Middleware(CORSMiddleware, allow_origins=may_read, **CORS)] if may_read else []),
        Middleware(GuardedApp, guard=guard, roots=lambda: service.indexes.roots),
        Middleware(_Failures),
    ]
    app = _App(middleware=layers, lifespan=_lifespan)
    app.router.redirect_slashes = False  # /rows/ asks for the empty key
    app.state.service, app.state.guard, app.state.at_end = service, guard, lambda: None
    app.state.metrics, app.state.following, app.state.plans, app.state.close = metrics, following, plans, None
    (_add_rows if plans is None else _add_catalog)(app, settings)
    app.add_route("/metrics", _metrics)
    for kind in TABLE:
        if issubclass(kind, Exception) and kind is not Exception:
            app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _not_routed)
    return app


def _add_rows(app: Starlette, settings: Settings) -> None:
    """Put the routes of rows on the app, and their pages."""
    add_routes(app)
    add_pages(app)
    if settings.mcp:
        try:
            import_module("gnomon.service.mcp").add_mcp(app, settings)
        except ModuleNotFoundError as error:
            where = settings.where("mcp")
            what = f"{where}: needs the package {error.name}, which is not installed: pip install 'gnomon-index[mcp]'"
            raise UsageError(what) from None


def _add_catalog(app: Starlette, settings: Settings) -> None:
    """Put the routes of an Iceberg catalog on the app."""
    if settings.mcp:
        raise UsageError(f"{settings.where('mcp')}: a catalog answers no agents; gnomon serve --set mcp=true does")
    add_probes(app)
    state, catalog = app.state, import_module("gnomon.service.catalog")
    routes = catalog.CatalogRoutes(state.service, state.plans, has_tokens=state.guard.tokens.needed)
    routes.add_to(app)
    state.close, state.check_catalog = routes.upstream.close, routes.upstream.check


class _App(Starlette):
    """The app. Without the setting `log_keys`, it removes keys from the spans of a request, also from the span of a
    host application, which is current until an instrumentation of the app starts its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self.state.service.settings.log_keys:
            spans = scope.setdefault("state", {})["spans"] = KeylessSpans()
            spans.hide(scope)
        await super().__call__(scope, receive, send)


def app_of_environment() -> Starlette:
    """`gnomon.service:app`, which another ASGI server runs: the settings come from GNOMON_* and from the file that
    GNOMON_CONFIG names, the log goes to stderr. Raises what `load_settings` and `create_app` raise."""
    settings = load_settings()
    lines = logs.start()
    settings.log_overridden()
    unused = [settings.where(name) for name in (*OF_OUR_SERVER, *OF_TLS) if settings.is_given(name)]
    if unused:
        logger.warning(
            "no effect: %s; the server that runs gnomon.service:app has options of its own", ", ".join(unused)
        )
    app = create_app(settings, lines=lines)
    app.state.at_end = partial(logs.stop, lines)
    atexit.register(logs.stop, lines)  # for hosts that do not run the lifespan
    return app


class _Failures:
    """Answers what no handler of a class of errors took, so that the layers around it see answers, never errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http" or begun:
                raise
            await (await _failed(Request(scope, receive), error))(scope, receive, send)


async def _metrics(request: Request) -> Response:
    """All metrics, of all workers, in the text format of Prometheus."""
    return Response(await request.app.state.metrics.answer(), media_type=CONTENT_TYPE)


async def _failed(request: Request, error: Exception) -> Response:
    indexes = request.app.state.service.indexes
    return problem_response(request, error, lambda: indexes.roots)


async def _not_routed(request: Request, error: Exception) -> Response:
    """The answer for a path without a route, or for a method that the route does not answer."""
    assert isinstance(error, HTTPException)
    headers, detail = error.headers, error.detail
    if error.status_code == 404 and route_path(request.scope) == "":
        return RedirectResponse(f"{request.scope['root_path']}/")  # links of the page are relative to its folder
    if error.status_code == 404:
        of_catalog = request.app.state.plans is not None
        detail = (
            f"there is no such route; {'those of the catalog begin with /v1/' if of_catalog else '/docs lists them'}"
        )
    elif error.status_code == 405:
        partial = [r for r in request.app.routes if isinstance(r, Route) and r.matches(request.scope)[0] != Match.NONE]
        methods = ", ".join(sorted({method for route in partial for method in route.methods or ()}))
        headers, detail = {"allow": methods}, f"{request.method} is not answered here; allowed: {methods}"
    return await _failed(request, HTTPException(error.status_code, detail, headers))


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Follow the indexes while the app runs."""
    following: Following = app.state.following
    following.start()
    try:
        yield
    finally:
        following.stop()
        if app.state.close is not None:
            await app.state.close()
        app.state.at_end()
