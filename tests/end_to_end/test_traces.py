"""`opentelemetry-instrument gnomon serve` and `... gnomon build`: the spans that a collector gets, over OTLP."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.service.lake import crawl_table
from tests.shadow.make_index import index_source, write_source
from tests.stores.process import HttpServer

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SECONDS, SPARK_SECONDS = 60, 300
KEY, ABSENT, PARTITION = "https://secret.example/a?b=1", "https://secret.example/absent", "secretpart"
INSTRUMENT = [sys.executable, str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable]
PARENT = "b7ad6b7169203331"


@dataclass
class Collector:
    """A receiver of OTLP over HTTP: all bytes that came, of traces, metrics and logs, and the spans."""

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a program that sends to it."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": "gnomon",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def trace(self, trace_id: str) -> list[Span]:
        return [span for span in self.spans() if span.trace_id.hex() == trace_id]


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            found.bodies.append((self.path, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HttpServer(("127.0.0.1", 0), Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_source(tmp_path / "lake", {f"dt={PARTITION}/p.parquet": crawl_table([KEY, "other", "third"])})
    return tmp_path / "lake"


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, cast(str, one.value.WhichOneof("value"))) for one in span.attributes}


def check_no_key(collector: Collector) -> None:
    """No byte of what came is of a key or of the value of a partition."""
    for path, body in collector.bodies:
        for secret in (b"secret", quote(KEY, safe="").encode()):
            assert secret not in body, (path, body[max(0, body.find(secret) - 200) :][:400])


@contextmanager
def serving(lake: Path, collector: Collector, *options: str) -> Iterator[str]:
    """The address of a traced service; it ends with the block, and what it had to send is there."""
    index = lake.with_name("shadow")
    index_source(lake, index, ["url"])
    command = [*INSTRUMENT, "-m", "gnomon", "serve", f"crawl={index}", "--port", "0", *options]
    environment = {**os.environ, **collector.variables}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "http://" in ready, process.stderr and process.stderr.read()
            yield ready.rpartition("http://")[2].strip()
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def ask(address: str, method: str, target: str, trace_id: str, body: str | None = None) -> int:
    connection = HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request(method, target, body, {"traceparent": f"00-{trace_id}-{PARENT}-01"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


LOOKUP, FETCH, ENCODE = STEPS = ["lookup", "fetch", "encode"]
# Of each request: method, target, body, status, its steps. A filter in memory denies an absent key without a fetch.
REQUESTS = {
    "a row": ("GET", f"/rows/{quote(KEY, safe='')}", None, 200, [STEPS]),
    "a row in the query": ("GET", f"/rows?url={quote(KEY, safe='')}&_explain=true", None, 200, [STEPS]),
    "no row": ("GET", f"/rows/{quote(ABSENT, safe='')}", None, 404, [[LOOKUP], [LOOKUP, FETCH]]),
    "a look": ("HEAD", "/rows/third", None, 200, [[LOOKUP]]),
    "a batch": ("POST", "/rows", f'{{"keys": ["{KEY}", "other"]}}', 200, [STEPS]),
    "a partition": ("GET", f"/rows/third?_where=dt={PARTITION}", None, 200, [STEPS]),
    "nothing of an index": ("GET", "/healthz", None, 200, [[]]),
}


def asked_once(names: list[str], expected: list[list[str]]) -> bool:
    """Whether a request made the expected steps. The service may first try without a thread, stop at a read that has to
    wait, and start again: then the first steps occur twice."""
    return any(names in [steps[:given_up] + steps for given_up in range(len(steps) or 1)] for steps in expected)


@pytest.mark.parametrize("workers", ["2", "1"])
def test_the_span_of_a_request_has_its_steps_and_the_parent_of_its_caller(
    lake: Path, collector: Collector, workers: str
) -> None:
    ids = {name: f"{number:032x}" for number, name in enumerate(REQUESTS, 1)}
    with serving(lake, collector, "--workers", workers) as address:
        for name, (method, target, body, status, _) in REQUESTS.items():
            assert ask(address, method, target, ids[name], body) == status
    for name, (method, _, _, status, expected) in REQUESTS.items():
        found = sorted(collector.trace(ids[name]), key=lambda span: span.start_time_unix_nano)
        [request] = [span for span in found if span.kind == Span.SPAN_KIND_SERVER]
        assert request.parent_span_id.hex() == PARENT
        assert request.name.startswith(method)
        told = attributes(request)
        assert told.get("http.response.status_code", told.get("http.status_code")) == status
        children = [span for span in found if span.name in STEPS]
        assert asked_once([span.name for span in children], expected), name
        for span in children:
            assert span.parent_span_id == request.span_id
            assert attributes(span)["gnomon.index"] == "crawl"
            times = (request.start_time_unix_nano, span.start_time_unix_nano, span.end_time_unix_nano)
            assert list(times) == sorted(times)
    cost = {span.name: attributes(span) for span in collector.trace(ids["a row"])}
    assert cost[LOOKUP].keys() == {f"gnomon.{name}" for name in ("index", "nodes", "filter_checks", "reads", "bytes")}
    assert cost[LOOKUP]["gnomon.nodes"] >= 1
    assert cost[FETCH].keys() == {f"gnomon.{name}" for name in ("index", "files", "reads", "bytes")}
    assert (cost[FETCH]["gnomon.files"], cost[FETCH]["gnomon.bytes"] > 0) == (1, True)
    check_no_key(collector)


def run(collector: Collector, *words: str, engine: str = "local", exit_code: int = 0) -> str:
    """Run a traced command; returns its stderr."""
    command = [*INSTRUMENT, "-m", "gnomon", *words, "--engine", engine]
    environment = {**os.environ, **collector.variables}
    seconds = SPARK_SECONDS if engine == "spark" else SECONDS
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == exit_code, done.stderr
    return done.stderr


def test_a_build_is_one_span_with_a_child_for_each_stage(lake: Path, collector: Collector) -> None:
    index = str(lake.with_name("shadow"))
    run(collector, "build", str(lake), index, "--key", "url", "--page-maps")
    spans = sorted(collector.spans(), key=lambda span: span.start_time_unix_nano)
    [job] = [span for span in spans if not span.parent_span_id]
    assert job.name == "gnomon build"
    told = attributes(job)
    assert (told["gnomon.index"], told["gnomon.snapshot"]) == ("shadow", 1)
    assert (told["gnomon.rows_indexed"], told["gnomon.new_files"]) == (3, 1)
    stages = [span for span in spans if span.parent_span_id == job.span_id]
    assert [span.name for span in stages] == ["list", "describe", "page maps", "write", "verify", "commit"]
    assert {span.trace_id for span in spans} == {job.trace_id}
    by_name = {span.name: attributes(span) for span in stages}
    assert (by_name["describe"]["gnomon.files"], by_name["write"]["gnomon.rows"]) == (1, 3)
    assert all(span.end_time_unix_nano <= job.end_time_unix_nano for span in stages)
    check_no_key(collector)


def test_a_build_that_fails_says_the_class_of_its_error_and_not_its_text(lake: Path, collector: Collector) -> None:
    index = str(lake.with_name("shadow"))
    (lake / f"dt={PARTITION}" / "q.parquet").write_bytes(b"PAR1, cut off")
    assert PARTITION in run(collector, "build", str(lake), index, "--key", "url", exit_code=3)
    spans = {span.name: span for span in collector.spans()}
    assert list(spans)[-1] == "gnomon build"
    for name in ("describe", "gnomon build"):
        assert spans[name].status.code == Status.STATUS_CODE_ERROR
        assert not spans[name].status.message
        assert attributes(spans[name])["error.type"] == "DamagedSource"
        assert not spans[name].events
    check_no_key(collector)


STAGES = {
    "local": {"dedup": ["check", "write", "append and index", "commit append"], "load": ["fetch"]},
    "spark": {"dedup": ["check and write", "append and index", "commit append"], "load": ["fetch"]},
}


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_an_append_and_a_load_are_traces_with_their_stages(
    lake: Path, collector: Collector, engine: str, tmp_path: Path
) -> None:
    index = str(tmp_path / "shadow")
    batch = crawl_table([KEY, "fourth"])
    write_source(tmp_path / "batch", {f"dt={PARTITION}/new.parquet": batch})
    (tmp_path / "keys.csv").write_text(f"url\n{KEY}\nfourth\n")
    index_source(lake, tmp_path / "shadow", ["url"])
    run(collector, "dedup", index, str(tmp_path / "batch"), "--batch-id", "secret-batch", engine=engine)
    run(collector, "load", index, str(tmp_path / "keys.csv"), str(tmp_path / "rows"), engine=engine)
    jobs = {span.name.partition(" ")[2]: span for span in collector.spans() if not span.parent_span_id}
    assert set(jobs) == {"dedup", "load"}
    assert attributes(jobs["load"])["gnomon.rows"] == 2
    for name, job in jobs.items():
        spans = collector.trace(job.trace_id.hex())
        assert attributes(job)["gnomon.index"] == "shadow"
        assert set(STAGES[engine][name]) <= {span.name for span in spans}
        assert {span.parent_span_id for span in spans if span is not job} <= {b"", *(span.span_id for span in spans)}
    check_no_key(collector)
