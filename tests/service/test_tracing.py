"""service/costs.py: spans of the instrumentations that people use, without keys; trace ids in the log."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Both the earlier and the stable attributes. The instrumentations read this once, when the first app is instrumented.
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "http/dup"

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.types import ASGIApp

from gnomon.service.application import create_app
from gnomon.service.costs import Cost, trace_ids
from gnomon.service.logs import Lines
from gnomon.service.settings.table import Settings
from tests.service.lake import crawl_table
from tests.shadow.make_index import index_source, write_source

KEY = "https://secret.example/a?b=1"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"

Instrument = Callable[[Starlette, TracerProvider], ASGIApp]


def by_itself(app: Starlette, provider: TracerProvider) -> ASGIApp:
    return app


def by_layer(app: Starlette, provider: TracerProvider) -> ASGIApp:
    """As the instrumentation of Starlette adds it."""
    app.add_middleware(OpenTelemetryMiddleware, tracer_provider=provider, exclude_spans=["receive", "send"])
    return app


def mounted(app: Starlette, provider: TracerProvider) -> ASGIApp:
    """FastAPI traces by itself where a provider is set."""
    host = FastAPI()
    host.mount("/gnomon", app)
    return host


def by_middleware(app: Starlette, provider: TracerProvider) -> ASGIApp:
    """As the docs say: the names of the spans `receive` and `send` begin with the path."""
    traced: ASGIApp = OpenTelemetryMiddleware(app, tracer_provider=provider, exclude_spans=["receive", "send"])
    return traced


def mounted_in_instrumented(app: Starlette, provider: TracerProvider) -> ASGIApp:
    host = mounted(app, provider)
    assert isinstance(host, FastAPI)
    FastAPIInstrumentor.instrument_app(host, tracer_provider=provider)
    return host


MOUNTED = (mounted, mounted_in_instrumented)
INSTRUMENTS: list[Instrument] = [by_itself, by_layer, by_middleware, *MOUNTED]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("traced")
    write_source(folder / "lake", {"p.parquet": crawl_table([KEY, "other"])})
    index_source(folder / "lake", folder / "shadow", ["url"])
    return Settings(indexes=[str(folder / "shadow")])


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemorySpanExporter, TracerProvider]]:
    """Spans of the test; its provider is the global one until the test ends."""
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield found, provider
    provider.shutdown()


def ask(app: ASGIApp, requests: list[tuple[str, str]], headers: Mapping[str, str] | None = None) -> list[int]:
    async def go() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as client:
            return [(await client.request(method, target, headers=headers)).status_code for method, target in requests]

    return asyncio.run(go())


def requests_with_keys(prefix: str) -> list[tuple[str, str]]:
    key = quote(KEY, safe="")
    return [
        ("GET", f"{prefix}/rows/{key}"),
        ("HEAD", f"{prefix}/rows/{key}"),
        ("GET", f"{prefix}/indexes/shadow/rows/{key}?_columns=n"),
        ("GET", f"{prefix}/rows?url={key}"),
        ("GET", f"{prefix}/rows?url={key}&url={key}"),
        ("GET", f"{prefix}/rows/{KEY.replace('?', '%3F').replace('secret', 'secret.secret')}"),
        ("GET", f"{prefix}/rows/{key}%ff"),
        ("GET", f"{prefix}/nowhere/{key}"),
        ("DELETE", f"{prefix}/rows/{key}"),
    ]


STATUSES = [200, 200, 200, 200, 400, 404, 400, 404, 405]


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_no_span_has_a_key(
    settings: Settings, exporter: tuple[InMemorySpanExporter, TracerProvider], instrument: Instrument
) -> None:
    spans, provider = exporter
    prefix = "/gnomon" if instrument in MOUNTED else ""
    app = instrument(create_app(settings), provider)
    assert ask(app, requests_with_keys(prefix)) == STATUSES
    found = spans.get_finished_spans()
    for span in found:
        assert "secret" not in span.to_json(), span.name
    servers = [span for span in found if span.kind is trace.SpanKind.SERVER]
    assert len(servers) == len(STATUSES)
    routes = ["/rows/{key}"] * 2 + ["/indexes/{name}/rows/{key}", "/rows", "/rows"]
    for span, route in zip(servers, routes, strict=False):
        assert paths_of(span) == {route}
        named = span.name.replace("{key:key}", "{key}").removesuffix("/{path}")
        assert named.partition(" ")[2] in (route, f"/gnomon{route}", "/gnomon")
        assert (span.attributes or {}).get("url.query", "-") == "-"
    has_query = any("url.query" in (span.attributes or {}) for span in servers)
    assert has_query == (instrument is not by_itself)


def paths_of(span: ReadableSpan) -> set[Any]:
    attributes = span.attributes or {}
    return {attributes[name] for name in ("url.path", "url.full", "http.target", "http.url") if name in attributes}


def test_the_instrumentations_of_opentelemetry_would_write_the_path_into_these_attributes(
    settings: Settings, exporter: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    spans, provider = exporter
    app = create_app(replace(settings, log_keys=True))
    assert ask(by_middleware(app, provider), requests_with_keys("")[3:4]) == [200]
    [span] = [one for one in spans.get_finished_spans() if "http.url" in (one.attributes or {})]
    named = {name for name, value in (span.attributes or {}).items() if "secret" in str(value)}
    assert named == {"url.query", "http.url"}


def test_with_log_keys_spans_keep_the_path_and_the_query(
    settings: Settings, exporter: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    spans, provider = exporter
    app = by_itself(create_app(replace(settings, log_keys=True)), provider)
    assert ask(app, requests_with_keys("")[:1]) == [200]
    [span] = [one for one in spans.get_finished_spans() if one.kind is trace.SpanKind.SERVER]
    assert (span.attributes or {})["url.path"] == f"/rows/{KEY}"


def test_a_span_that_is_not_of_a_request_keeps_its_name_and_its_attributes(
    settings: Settings, exporter: tuple[InMemorySpanExporter, TracerProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, provider = exporter
    app = create_app(settings)
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    with provider.get_tracer("test").start_as_current_span("work", attributes={"part": "one"}):
        assert ask(app, requests_with_keys("")[:1]) == [200]
    [span] = spans.get_finished_spans()
    assert (span.name, dict(span.attributes or {})) == ("work", {"part": "one"})


def logged(app: Starlette, lines: Lines, path: Path) -> list[dict[str, Any]]:
    lines.start()
    lines.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Lines, Path]]:
    path = tmp_path / "log"
    with path.open("wb") as file:
        yield Lines(file.fileno()), path


def test_log_lines_of_a_request_have_the_ids_of_its_span(
    settings: Settings, exporter: tuple[InMemorySpanExporter, TracerProvider], log: tuple[Lines, Path]
) -> None:
    spans, provider = exporter
    lines, path = log
    app = create_app(settings, lines=lines)
    assert ask(by_itself(app, provider), requests_with_keys("")[:1], {"traceparent": PARENT}) == [200]
    [span] = [one for one in spans.get_finished_spans() if one.kind is trace.SpanKind.SERVER]
    assert span.context is not None
    [line] = logged(app, lines, path)
    assert (line["trace_id"], line["span_id"]) == (TRACE, trace.format_span_id(span.context.span_id))
    assert line["span_id"] != SPAN


def test_log_lines_have_the_ids_of_the_header_where_nothing_traces(
    settings: Settings, log: tuple[Lines, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of errors, too."""
    lines, path = log
    handler = lines
    logger = logging.getLogger("gnomon.service")
    app = create_app(settings, lines=lines)

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("gnomon.service.indexes.threads.RequestThreads.work", broken)
    logger.addHandler(handler)
    try:
        ask(app, [("GET", "/rows/a")], {"traceparent": PARENT})
        ask(app, [("GET", "/rows/a")], {"traceparent": "00-no-trace-01"})
        ask(app, [("GET", "/rows/a")])
    finally:
        logger.removeHandler(handler)
    found = logged(app, lines, path)
    assert [line["logger"] for line in found] == ["gnomon.service", "gnomon.access"] * 3
    assert [(line.get("trace_id"), line.get("span_id")) for line in found] == [(TRACE, SPAN)] * 2 + [(None, None)] * 4


@pytest.mark.parametrize(
    "headers", [[], [b"00-x"], [b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01"], [b"\xff"], [PARENT.encode()] * 2]
)
def test_a_header_that_names_no_span_gives_no_ids(headers: list[bytes]) -> None:
    assert trace_ids({"headers": [(b"traceparent", value) for value in headers]}) is None


def test_the_ids_are_of_the_header_alone() -> None:
    assert trace_ids({"headers": [(b"x", b"y"), (b"traceparent", PARENT.encode())]}) == (TRACE, SPAN)
    assert Cost("id").trace is None
