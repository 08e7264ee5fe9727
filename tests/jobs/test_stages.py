"""jobs/stages.py: the spans of jobs and stages, where a program traces; none where no program does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gnomon.jobs import Stages, job_span, stages
from gnomon.jobs.build import build
from tests.shadow.make_index import write_source

ROOT = Path(__file__).parents[2]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield found
    provider.shutdown()


def parent_of(span: ReadableSpan, spans: InMemorySpanExporter) -> str | None:
    if span.parent is None:
        return None
    ids = {one.context.span_id: one.name for one in spans.get_finished_spans() if one.context is not None}
    return ids[span.parent.span_id]


def test_stages_are_children_of_their_job_with_their_counts(spans: InMemorySpanExporter) -> None:
    run = Stages()
    with job_span("build", "s3://bucket/indexes/crawl/") as job:
        with run.stage("describe", 2, "files"):
            pass
        with run.stage("write", 2, "files", rows=7), job_span("build", "/other"):
            pass
        with run.stage("write", 2, "files", rows=7, is_about=True):
            pass
        job.tell(snapshot=3)
    found = spans.get_finished_spans()
    assert [(span.name, parent_of(span, spans), dict(span.attributes or {})) for span in found] == [
        ("describe", "gnomon build", {"gnomon.files": 2}),
        ("gnomon build", "write", {"gnomon.index": "other"}),
        ("write", "gnomon build", {"gnomon.files": 2, "gnomon.rows": 7}),
        ("write", "gnomon build", {"gnomon.files": 2}),
        ("gnomon build", None, {"gnomon.index": "crawl", "gnomon.snapshot": 3}),
    ]


def test_a_stage_that_comes_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.5, 10.0, 12.0])
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(times))
    found = Stages()
    for _ in range(2):
        with found.stage("page maps"):
            pass
    assert found.seconds == {"page maps": 3.5}


def test_an_error_is_its_class_alone(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), job_span("build", "/crawl"), Stages().stage("write"):
        raise KeyError("https://secret.example/")
    for span in spans.get_finished_spans():
        assert (span.attributes or {})["error.type"] == "KeyError"
        assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, None)
        assert "secret" not in span.to_json()


def test_a_build_with_nothing_to_do_and_one_that_only_drops_files_are_jobs_too(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    table = pa.table({"id": [1, 2, 3]})
    write_source(tmp_path / "lake", {"a.parquet": table, "b.parquet": table.slice(1)})
    for _ in range(2):
        build(None, tmp_path / "lake", tmp_path / "shadow", ["id"])
    (tmp_path / "lake" / "b.parquet").unlink()
    build(None, tmp_path / "lake", tmp_path / "shadow", ["id"])
    jobs = [dict(span.attributes or {}) for span in spans.get_finished_spans() if span.name == "gnomon build"]
    told = [(job["gnomon.snapshot"], job["gnomon.rows_indexed"], job["gnomon.vanished_files"]) for job in jobs]
    assert told == [(1, 5, 0), (1, 0, 0), (2, 0, 1)]


@pytest.mark.process
def test_a_build_loads_no_opentelemetry(tmp_path: Path) -> None:
    write_source(tmp_path / "lake", {"a.parquet": pa.table({"id": [1, 2, 3]})})
    script = (
        "import sys; from gnomon.jobs.build import build; build(None, *sys.argv[1:], ['id']); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lake"), str(tmp_path / "shadow")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
