"""The outermost layer: each request gets an id, is counted and logged, and its answer gets the headers of every answer,
whatever became of it."""

import os
import re
import time
from itertools import chain

from opentelemetry.trace import Span
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnomon.service import costs
from gnomon.service.access import Tokens
from gnomon.service.api import Service, headers_of
from gnomon.service.costs import KeylessSpans, add_steps, end_span, request_span, trace_ids
from gnomon.service.http import route_path
from gnomon.service.logs import AccessLog, Entry
from gnomon.service.metrics.collectors import OTHER
from gnomon.service.metrics.exposition import Metrics

HEADER = b"x-request-id"
TABLE_VERSION = b"x-table-version"  # the version of the lake table in the answer
LEFT = 499  # the status of a request whose client did not wait for the answer
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Following:
    """The background threads. They look for newer snapshots, list the sources, read the tokens file, and publish the
    metrics to other workers."""

    def __init__(self, service: Service, metrics: Metrics, tokens: Tokens) -> None:
        self._service, self._metrics, self._tokens = service, metrics, tokens
        self.started = False

    def start(self) -> None:
        """Start them. For one event loop; a second call does nothing."""
        if self.started:
            return
        self.started = True
        self._metrics.start()
        self._tokens.watch()
        for served in self._service.indexes:
            served.follow()

    def stop(self) -> None:
        """Tell the threads to end."""
        for served in self._service.indexes:
            served.stop()
        self._tokens.close()
        self._metrics.stop()
        self.started = False


class WatchedApp:
    """Gives each request an id: its own `X-Request-Id` if that is valid, else a new one. Every answer has the id in
    this header; the app finds it in `scope["state"]["request_id"]`. Every answer also has the headers of `headers_of`,
    unless the app set one of the same name.

    A span that is recorded gets a child for each step of the request.
    Spans in `scope["state"]["spans"]` get the path of the route in place of the path of the request. The layer sets
    `root_path` from the settings, where no server and no mount has set it. The first request starts `following` where
    the lifespan did not run: mounts and some servers do not run it."""

    def __init__(
        self, app: ASGIApp, service: Service, metrics: Metrics, log: AccessLog | None, following: Following
    ) -> None:
        self._app, self._service, self._metrics, self._log = app, service, metrics, log
        self._root_path, self._following = service.settings.root_path, following
        self._names = frozenset(served.place.name for served in service.indexes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._following.started:
            self._following.start()
        if self._root_path and not scope.get("root_path"):
            scope = {**scope, "root_path": self._root_path}
        scope.pop("route", None)  # of a host that mounts the app
        state = scope.setdefault("state", {})
        state["request_id"] = _request_id(scope).decode()
        if "spans" in state:
            state["spans"].hide(scope)
        with request_span(scope) as span:
            await self._watch(scope, receive, send, span)

    async def _watch(self, scope: Scope, receive: Receive, send: Send, span: Span | None) -> None:
        request_id: str = scope["state"]["request_id"]
        of_id = (HEADER, request_id.encode())
        spans: KeylessSpans | None = scope["state"].get("spans")
        cost = costs.begin(request_id, trace_ids(scope), timed=span is not None)
        status, sent = 0, 0
        added = headers_of(route_path(scope), scope.get("scheme") == "https")

        async def watched(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                if spans is not None:
                    spans.show(self._template(scope))
                headers = message.get("headers", ())
                names = {name.lower() for name, _ in headers}
                message["headers"] = [*headers, *(one for one in added if one[0] not in names), of_id]
                if cost.table_version is not None:
                    message["headers"].append((TABLE_VERSION, cost.table_version.encode()))
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b"")) if scope["method"] != "HEAD" else 0  # the protocol sends none
            await send(message)

        began, begun = time.time(), time.perf_counter()
        self._metrics.in_progress += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.in_progress -= 1
            seconds = time.perf_counter() - begun
            route = self._template(scope)
            index = self._index(scope, route)
            status = status or LEFT
            rejected = scope["state"].get("rejected")
            if span is not None:
                end_span(scope, route, status, spans is None)
                add_steps(span, index, chain.from_iterable(cost.steps or ()))
            self._metrics.count((route, scope["method"], status, index), seconds, cost, rejected)
            if self._log is not None:
                self._log.put(Entry(scope, cost, began, seconds, route, index, status, sent, rejected))

    def _index(self, scope: Scope, route: str) -> str:
        """The name of the requested index; empty for a route without an index, or for an unknown name."""
        name = (scope.get("path_params") or {}).get("name")
        if name is not None:
            return name if name in self._names else ""
        return self._service.indexes.default.place.name if route.startswith("/rows") else ""

    def _template(self, scope: Scope) -> str:
        """The path of the route, with the names of its parameters. So it has no more values than there are routes."""
        return str(getattr(scope.get("route"), "path_format", OTHER))


def _request_id(scope: Scope) -> bytes:
    given: list[bytes] = [value for name, value in scope["headers"] if name == HEADER]
    return given[0] if len(given) == 1 and _ID.fullmatch(given[0]) else os.urandom(16).hex().encode()
