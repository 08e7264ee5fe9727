"""A local file that is rewritten in place with its old size and time; and one whose content stays."""

import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from gnomon.shadow import FetchStats
from gnomon.shadow.commit.relocate import adopt
from gnomon.shadow.errors import SourceError
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.metadata.source_files import source_root
from gnomon.shadow.storage import storage_at
from tests.opened import open_index
from tests.shadow.make_index import index_source
from tests.sources.sequence_files import written as sequence_file

ROWS = 400
AVRO = {"type": "record", "name": "Row", "fields": [{"name": name, "type": "string"} for name in ("k", "v", "w")]}
Rows = Sequence[tuple[str, str, str]]


def rows_of(version: str) -> Rows:
    """Rows whose texts have the same length in each version."""
    return [
        (f"k{n:04d}", f"{version}v{n * 7919 % 10_000:04d}", f"{version}w{n * 104_729 % 10_000:04d}")
        for n in range(ROWS)
    ]


def table(rows: Rows) -> pa.Table:
    return pa.table(dict(zip(("k", "v", "w"), map(list, zip(*rows, strict=True)), strict=True)))


def as_parquet(rows: Rows) -> bytes:
    out = io.BytesIO()
    pq.write_table(table(rows), out, compression="none", use_dictionary=False, row_group_size=100)
    return out.getvalue()


def as_avro(rows: Rows) -> bytes:
    out = io.BytesIO()
    records = [dict(zip(("k", "v", "w"), row, strict=True)) for row in rows]
    fastavro.writer(out, AVRO, records, sync_interval=1000, sync_marker=b"0123456789abcdef")
    return out.getvalue()


def as_orc(rows: Rows) -> bytes:
    out = io.BytesIO()
    orc.write_table(table(rows), out, compression="uncompressed", dictionary_key_size_threshold=0)
    return out.getvalue()


def as_sequence(rows: Rows) -> bytes:
    return sequence_file([(k, v + w) for k, v, w in rows])


def as_csv(rows: Rows) -> bytes:
    return "".join(",".join(row) + "\n" for row in [("k", "v", "w"), *rows]).encode()


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(dict(zip(("k", "v", "w"), row, strict=True))) + "\n" for row in rows).encode()


FORMATS: dict[str, Callable[[Rows], bytes]] = {
    "parquet": as_parquet,
    "avro": as_avro,
    "orc": as_orc,
    "sequence": as_sequence,
    "csv": as_csv,
    "jsonl": as_jsonl,
}


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lake(tmp_path: Path, format: str) -> Path:
    """A source of one file of version a, and its index."""
    file = tmp_path / "source" / f"part.{format}"
    file.parent.mkdir()
    file.write_bytes(FORMATS[format](rows_of("a")))
    index_source(file.parent, tmp_path / "index", [key_of(format)], format=format)
    return file


def key_of(format: str) -> str:
    return "key" if format == "sequence" else "k"


def rewrite(file: Path, data: bytes) -> None:
    """Rewrite a file in place with the old size and time, after the clock of file times has advanced."""
    before = file.stat()
    assert len(data) == before.st_size
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        with file.open("r+b") as out:
            out.write(data)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def texts(rows: list[dict[str, object]]) -> list[tuple[str, ...]]:
    return [tuple(str(value) for value in row.values()) for row in rows]


def expected(format: str, version: str, number: int) -> tuple[str, ...]:
    k, v, w = rows_of(version)[number]
    return (k, v + w) if format == "sequence" else (k, v, w)


def answer(index: OpenIndex, format: str, number: int) -> tuple[str, ...] | None:
    """The row of a key; None if it is refused."""
    try:
        [row] = texts(index.fetch(f"k{number:04d}"))
    except SourceError:
        return None
    return row


def test_no_row_of_a_rewritten_file_is_of_two_versions_or_of_the_old_one(tmp_path: Path, format: str) -> None:
    file = lake(tmp_path, format)
    index = open_index(str(tmp_path / "index"))
    for number in range(0, ROWS, 7):  # so that metadata and pages of the file are in memory
        assert answer(index, format, number) == expected(format, "a", number)
    rewrite(file, FORMATS[format](rows_of("b")))
    for opened in (index, open_index(str(tmp_path / "index"))):
        answers = {number: answer(opened, format, number) for number in range(ROWS)}
        for number, row in answers.items():
            assert row in (None, expected(format, "b", number))


@pytest.fixture
def coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system whose clock of file times has not ticked since the epoch. Newer kernels tell two changes apart."""
    real = os.fstat

    def fstat(descriptor: int) -> SimpleNamespace:
        found = real(descriptor)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, "st_ctime_ns": 1})

    monkeypatch.setattr("gnomon.shadow.storage.local.os.fstat", fstat)


@pytest.mark.usefixtures("coarse_clock")
def test_a_file_that_takes_the_name_of_another_within_a_tick_of_the_clock_is_read_anew(
    tmp_path: Path, format: str
) -> None:
    """Both have one size, time and ctime; only the inode differs."""
    file = lake(tmp_path, format)
    before = file.stat()
    index, stats = open_index(str(tmp_path / "index")), FetchStats()
    index.fetch("k0003", stats=stats)
    assert index.is_unchanged(stats.source.opened)
    other = tmp_path / "other"
    other.write_bytes(FORMATS[format](rows_of("b")))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert not index.is_unchanged(stats.source.opened)
    for number in range(ROWS):
        assert answer(index, format, number) in (None, expected(format, "b", number))


def test_a_rewritten_file_is_seen_by_the_next_build(tmp_path: Path, format: str) -> None:
    file = lake(tmp_path, format)
    rewrite(file, FORMATS[format](rows_of("b")))
    opened = open_index(str(tmp_path / "index"))
    assert [info.path for info in opened.coverage().changed] == [file.name]


@pytest.mark.parametrize("touch", ["chmod", "link", "moved"])
def test_a_file_whose_content_is_left_alone_stays_the_one_indexed(tmp_path: Path, format: str, touch: str) -> None:
    file = lake(tmp_path, format)
    index = open_index(str(tmp_path / "index"))
    assert answer(index, format, 3) == expected(format, "a", 3)
    before = file.stat().st_ctime_ns
    mode = 0o600
    while file.stat().st_ctime_ns == before:
        if touch == "chmod":
            mode ^= 0o044
            file.chmod(mode)
        elif touch == "link":
            (tmp_path / "other").unlink(missing_ok=True)
            os.link(file, tmp_path / "other")
        else:
            file.rename(file.with_name("away"))
            file.with_name("away").rename(file)
    for opened in (index, open_index(str(tmp_path / "index"))):
        assert answer(opened, format, 3) == expected(format, "a", 3)
        assert opened.coverage().is_empty
    assert adopt(storage_at(str(tmp_path / "index")), source_root(str(file.parent)))[1] == 1  # its ctime is on record
    assert open_index(str(tmp_path / "index")).coverage().is_empty


def test_a_file_of_no_bytes_is_no_data_file(tmp_path: Path, format: str) -> None:
    source = tmp_path / "source"
    (source / "dt=1").mkdir(parents=True)
    (source / "dt=1" / f"a.{format}").write_bytes(FORMATS[format](rows_of("a")))
    (source / "dt=1" / f"b.{format}").write_bytes(b"")
    (source / "dt=2").mkdir()
    (source / "dt=2" / f"c.{format}").write_bytes(b"")
    assert [info.path for info in source_root(str(source)).list()] == [f"dt=1/a.{format}"]
    index_source(source, tmp_path / "index", [key_of(format)], format=format)
    assert open_index(str(tmp_path / "index")).coverage().is_empty
