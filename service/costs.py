"""The running request: its cost so far, and its spans of OpenTelemetry.

The code that does the work records the cost; metrics and the access log read it. The service makes the span of a
request, unless an instrumentation of OpenTelemetry did. Those put the path and the query into it, and both hold keys:
they are removed."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from gnomon.shadow import FetchStats
from gnomon.shadow.fetch import TimedStep

HIDDEN = "-"
# Attributes of the stable and of the earlier semantic conventions.
PATHS = ("url.path", "url.full", "http.target", "http.url")
QUERY = "url.query"
_propagator = TraceContextTextMapPropagator()


class TraceIds(NamedTuple):
    """The ids of a span in lower-case hexadecimal digits: 32 of the trace, 16 of the span."""

    trace_id: str
    span_id: str


def trace_ids(scope: Scope) -> TraceIds | None:
    """The ids of the current span; without one, the ids of the caller's span in the header `traceparent`. None if that
    header is missing or malformed."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid and (caller := _caller(scope)) is not None:
        found = trace.get_current_span(caller).get_span_context()
    if not found.is_valid:
        return None
    return TraceIds(trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id))


def _caller(scope: Scope) -> Context | None:
    """The span of the caller, by the header `traceparent`."""
    given = [value for name, value in scope["headers"] if name == b"traceparent"]
    return _propagator.extract({"traceparent": given[0].decode("latin-1")}) if len(given) == 1 else None


@contextmanager
def request_span(scope: Scope) -> Iterator[trace.Span | None]:
    """The span of a request: the current one, or else a new one, whose parent is the caller's; `end_span` gives this
    one its attributes. None where no span is recorded."""
    found = trace.get_current_span()
    if found.is_recording() or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield found if found.is_recording() else None
        return
    tracer, kind = trace.get_tracer("gnomon.service"), trace.SpanKind.SERVER
    span = scope["state"]["span"] = tracer.start_span(scope["method"], _caller(scope), kind)
    # The text of an exception may have keys, and that of its status, too.
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield span if span.is_recording() else None


def end_span(scope: Scope, route: str, status: int, log_keys: bool) -> None:
    """Give the span that `request_span` made its name, and attributes of the semantic conventions for HTTP: without
    `log_keys` the route is its path."""
    span: trace.Span | None = scope["state"].get("span")
    if span is None:
        return
    method = scope["method"]
    span.update_name(f"{method} {route}")
    path = {"url.path": scope["path"], QUERY: scope["query_string"].decode("latin-1")}
    span.set_attributes(path if log_keys else {"url.path": route})
    span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)


def add_steps(parent: trace.Span, index: str, steps: Iterable[TimedStep]) -> None:
    """Record the steps of a request as children of its span: of each the index and its counts, no key, no path."""
    tracer, context = trace.get_tracer("gnomon.service"), trace.set_span_in_context(parent)
    epoch_ns = time.time_ns() - time.perf_counter_ns()
    for step in steps:
        attributes: dict[str, str | int] = {"gnomon.index": index}
        attributes |= {f"gnomon.{name}": count for name, count in step.counts.items()}
        span = tracer.start_span(step.step, context, attributes=attributes, start_time=epoch_ns + step.begin_ns)
        span.end(epoch_ns + step.end_ns)


class KeylessSpans:
    """The spans of a request, from which its path and its query are removed.

    A sampler, and a processor that looks at a span when it starts, have seen them already; no exporter does."""

    def __init__(self) -> None:
        self._spans: list[_Keyless] = []

    def hide(self, scope: Scope) -> None:
        """Remove the path and the query from the current span, and from the one that a host of FastAPI has made: an
        instrumentation may have put its own span around the app or into it."""
        of_fastapi: trace.Span | None = getattr(scope.get("fastapi.telemetry"), "span", None)
        for span in {trace.get_current_span(), of_fastapi}:
            if span is not None and span.is_recording():
                self._spans.append(_Keyless(span, scope))

    def show(self, route: str) -> None:
        """Put the path of the route, with its parameters by name, where the path was."""
        for span in self._spans:
            span.show(route)


class _Keyless:
    """A span without the path and the query."""

    def __init__(self, span: trace.Span, scope: Scope) -> None:
        self._span, self._method = span, scope["method"]
        name = getattr(span, "name", None)  # the interface of OpenTelemetry has no getters, its SDK has
        self._named_by_path = name is None or scope["path"] in name
        known = getattr(span, "attributes", None)
        self._paths = [attribute for attribute in PATHS if known is None or attribute in known]
        if known is None or QUERY in known:
            span.set_attribute(QUERY, HIDDEN)
        self._set(HIDDEN, self._method)

    def show(self, route: str) -> None:
        self._set(route, f"{self._method} {route}")

    def _set(self, path: str, name: str) -> None:
        if self._named_by_path:
            self._span.update_name(name)
        for attribute in self._paths:
            self._span.set_attribute(attribute, path)


@dataclass
class Cost:
    """The cost of one request, with its ids for the log. `keys` and `stats` are set when its look-up has ended; `count`
    is a number of rows. `table_version` is the version of the lake table in the answer. `steps`, if not None, receives
    the steps of each look-up."""

    request_id: str = ""
    trace: TraceIds | None = None
    stats: FetchStats | None = None
    keys: int = 0
    count: int | None = None
    encode_seconds: float | None = None
    table_version: str | None = None
    errors_logged: int = 0
    steps: list[list[TimedStep]] | None = None


_running: ContextVar[Cost | None] = ContextVar("cost", default=None)


def begin(request_id: str, trace: TraceIds | None = None, timed: bool = False) -> Cost:
    """Begin the cost of a request that runs in this context, and return it. With `timed` it records steps, too."""
    cost = Cost(request_id, trace, steps=[] if timed else None)
    _running.set(cost)
    return cost


def running() -> Cost | None:
    """The cost of the request that runs in this context: in its task, or in a thread with a copy of the context. None
    without a request."""
    return _running.get()


def new_stats() -> FetchStats:
    """A new `FetchStats` for a look-up. The cost of the running request receives its steps, if they are timed."""
    cost = _running.get()
    if cost is None or cost.steps is None:
        return FetchStats()
    stats = FetchStats(timed=[])
    assert stats.timed is not None
    cost.steps.append(stats.timed)
    return stats


def note(stats: FetchStats, keys: int, count: int | None) -> None:
    """Record that the look-up of `keys` keys, in all pieces so far, ended and found `count` rows (None: not
    counted)."""
    cost = _running.get()
    if cost is not None:
        cost.stats, cost.keys, cost.count = stats, keys, count


def note_version(version: str) -> None:
    """Record the version of the lake table in the answer."""
    cost = _running.get()
    if cost is not None:
        cost.table_version = version


@contextmanager
def encoding() -> Iterator[None]:
    """Record the time of the block, which encodes an answer or a piece of it."""
    begin_ns = time.perf_counter_ns()
    yield
    end_ns = time.perf_counter_ns()
    cost = _running.get()
    if cost is not None:
        cost.encode_seconds = (cost.encode_seconds or 0.0) + (end_ns - begin_ns) / 1e9
        if cost.steps is not None:
            cost.steps.append([TimedStep("encode", begin_ns, end_ns, {})])
