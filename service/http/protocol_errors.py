"""Requests that the connection refused before their routes saw them, answered as problems."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gnomon.service.errors import problem_response
from gnomon.service.redaction import Roots


class RefusalsApp:
    """The layer that answers a request with the error in `scope["state"]["refused"]`. Requests without such an error
    pass."""

    def __init__(self, app: ASGIApp, roots: Callable[[], Roots]) -> None:
        self._app = app
        self._roots = roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = scope.get("state", {}).get("refused") if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(Request(scope), error, self._roots)(scope, receive, send)
