"""A request and its answer on a connection."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class RequestCycle(RequestResponseCycle):
    """A request and its answer. `failure` is raised where the rest of its body is waited for."""

    failure: Exception | None = None

    async def run_asgi(self, app: Any) -> None:
        async def until_cancelled(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:  # the client has left, or the process ends before the answer
                if not self.disconnected:
                    self.disconnected = True
                    self.transport.close()

        await super().run_asgi(until_cancelled)

    async def receive(self) -> Any:
        message = await super().receive()
        if self.failure is not None and message["type"] == "http.request":
            raise self.failure
        return message
