"""The application: indexes opened, routes, layers and failures wired."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import TABLE, problem_response
from service.indexes import Indexes
from service.refusals import RefusalsApp
from service.routes import Service, add_routes
from service.settings import Settings


def create_app(settings: Settings, patient: bool = False) -> FastAPI:
    """The service of the indexes of the settings, opened here: the errors of `service.indexes.Indexes` are raised.

    The layers around the routes, from the outside: all requests pass them, failed ones, too."""
    service = Service(settings, Indexes(settings, patient))
    app = FastAPI(
        title="Gnomon",
        description="Rows of a data lake by their key. Every failure is `application/problem+json`.",
        version=version("gnomon-index"),
        lifespan=_lifespan,
        redirect_slashes=False,  # /rows/ asks for the empty key
        redoc_url=None,
    )
    app.state.service = service
    add_routes(app)
    for kind in TABLE:
        if issubclass(kind, Exception) and kind is not Exception:
            app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _not_routed)
    app.add_middleware(_Failures)  # the innermost layer: those added after it lie around it
    app.add_middleware(RefusalsApp, roots=lambda: service.indexes.roots)
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


async def _failed(request: Request, error: Exception) -> Response:
    return problem_response(request, error, request.app.state.service.indexes.roots)


async def _not_routed(request: Request, error: Exception) -> Response:
    """A path without a route, or a method it does not answer."""
    assert isinstance(error, HTTPException)
    headers, detail = error.headers, error.detail
    if error.status_code == 404:
        detail = "there is no such route; /docs lists them"
    elif error.status_code == 405:
        partial = [r for r in request.app.routes if isinstance(r, Route) and r.matches(request.scope)[0] != Match.NONE]
        methods = ", ".join(sorted({method for route in partial for method in route.methods or ()}))
        headers, detail = {"allow": methods}, f"{request.method} is not answered here; allowed: {methods}"
    return await _failed(request, HTTPException(error.status_code, detail, headers))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Follow the indexes while the app runs."""
    service: Service = app.state.service
    for served in service.indexes:
        served.follow()
    try:
        yield
    finally:
        for served in service.indexes:
            served.stop()
