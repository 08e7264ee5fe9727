"""The application: index opened, routes and failures wired."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from service.errors import TABLE, problem_response
from service.routes import Service, add_routes
from service.served import ServedIndex
from service.settings import Settings


def create_app(settings: Settings) -> FastAPI:
    """The service of one index, opened here: the errors of `shadow.open_index` are raised."""
    served = ServedIndex(settings)
    app = FastAPI(
        title="Gnomon",
        description="Rows of a data lake by their key. Every failure is `application/problem+json`.",
        version=version("gnomon-index"),
        lifespan=_lifespan,
        redirect_slashes=False,  # /rows/ asks for the empty key
        redoc_url=None,
    )
    app.state.service = Service(settings, served, ThreadPoolExecutor(settings.threads, "gnomon-fetch"))
    add_routes(app)
    for kind in TABLE:
        if issubclass(kind, Exception):
            app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _not_routed)
    return app


async def _failed(request: Request, error: Exception) -> Response:
    return problem_response(request, error, request.app.state.service.served.roots)


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
    """Look for newer snapshots while the app runs; let running requests end when it stops."""
    service: Service = app.state.service
    looking = asyncio.create_task(_follow(service.served, service.settings.refresh_seconds))
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        service.threads.shutdown(cancel_futures=True)


async def _follow(served: ServedIndex, every_seconds: float) -> None:
    while True:
        await asyncio.sleep(every_seconds)
        await asyncio.to_thread(served.refresh)  # a thread of its own: busy fetches must not delay it
