"""Whatever is missing, or is not what it should be: each public call says so on one line, which names the object and
what to do, as an error of Gnomon. One row for each call and each kind of missing thing."""

import os
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import gnomon
from gnomon.__main__ import main
from gnomon.commands.failures import one_line
from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new, read_batch
from gnomon.jobs.dione import import_dione
from gnomon.jobs.dione.export_index import export_dione
from gnomon.jobs.load import load
from gnomon.shadow.errors import GnomonError, Unreadable
from gnomon.shadow.maintenance import compact, rebucket, vacuum
from gnomon.shadow.storage import storage_at
from gnomon.shadow.verify import verify
from tests.profiles import cases

ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})
NEW = pa.table({"id": ["c"], "v": [3]})
RAW = re.compile(r"\[Errno|Traceback|\w*Error:|Errno|--debug")
TIMES = re.compile(r"\d(ns|µs|us|ms)\b|-\d+(\.\d+)? ?s\b|\d\.\d{3,} ?s\b|retry_timeout")

KINDS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda at: at / "none",
    "in no folder": lambda at: at / "none" / "x",
    "below a file": lambda at: at / "file" / "x",
    "an empty folder": lambda at: at / "folder",
    "a broken link": lambda at: at / "dangling",
    "a link to itself": lambda at: at / "loop",
    "below a link to itself": lambda at: at / "loop" / "x",
    "a long name": lambda at: at / ("x" * 300),
    "a null character": lambda at: f"{at}/a\0b",
    "a line end": lambda at: f"{at}/a\nb",
}
TYPED = [kind for kind in KINDS if kind != "a null character"]  # which no shell can type
# A call of the public names with a path that does not have what it needs.
CALLS: dict[str, Callable[[Path, str], object]] = {
    "open_index": lambda at, path: gnomon.open_index(path),
    "build, source": lambda at, path: build(None, path, f"{at}/new", ["id"]),
    "build, csv": lambda at, path: build(None, path, f"{at}/new", ["id"], format="csv"),
    "build, delta": lambda at, path: build(None, f"delta:{path}", f"{at}/new", ["id"]),
    "build, iceberg": lambda at, path: build(None, f"iceberg:{path}/", f"{at}/new", ["id"]),
    "build, iceberg file": lambda at, path: build(None, f"iceberg:{path}/v1.metadata.json", f"{at}/new", ["id"]),
    "append_new": lambda at, path: append_new(None, path, NEW, "b"),
    "read_batch": lambda at, path: read_batch(None, path, f"{at}/index"),
    "read_batch, index": lambda at, path: read_batch(None, f"{at}/source", path),
    "batch_digest": lambda at, path: gnomon.batch_digest(path),
    "load": lambda at, path: load(None, path, ROWS.select(["id"])).read_all(),
    "export_dione": lambda at, path: export_dione(path, f"{at}/new"),
    "import_dione": lambda at, path: import_dione(None, path, f"{at}/new", f"{at}/source"),
    "verify": lambda at, path: verify(storage_at(path)),
    "compact": lambda at, path: compact(storage_at(path)),
    "vacuum": lambda at, path: vacuum(storage_at(path)),
    "rebucket": lambda at, path: rebucket(storage_at(path), 3),
}
COMMANDS: dict[str, Callable[[Path, object], list[object]]] = {
    "get": lambda at, path: ["get", path, "a"],
    "get --keys": lambda at, path: ["get", at / "index", "--keys", path],
    "load": lambda at, path: ["load", path, at / "keys.csv", at / "out", "--engine", "local"],
    "load, keys": lambda at, path: ["load", at / "index", path, at / "out", "--engine", "local"],
    "dedup": lambda at, path: ["dedup", path, at / "source", "--engine", "local"],
    "dedup, batch": lambda at, path: ["dedup", at / "index", path, "--engine", "local"],
    "build": lambda at, path: ["build", path, at / "new", "--key", "id", "--engine", "local"],
    "inspect": lambda at, path: ["inspect", path],
    "history": lambda at, path: ["history", path],
    "verify": lambda at, path: ["verify", path],
    "compact": lambda at, path: ["compact", path],
    "vacuum": lambda at, path: ["vacuum", path],
    "rebucket": lambda at, path: ["rebucket", path, "--buckets", "3"],
    "serve --config": lambda at, path: ["serve", "--config", path, "--check"],
    "serve --tokens-file": lambda at, path: ["serve", at / "index", "--tokens-file", path, "--check"],
    "serve --tls-certificate": lambda at, path: [
        *("serve", at / "index", "--tls-certificate", path, "--tls-key", path, "--check")
    ],
}
# A path that a command or call writes to. Kinds that hold what is written are not errors.
WRITING: dict[str, Callable[[Path, object], list[object]]] = {
    "load, out": lambda at, path: ["load", at / "index", at / "keys.csv", path, "--engine", "local"],
    "dedup --report": lambda at, path: [
        "dedup",
        at / "index",
        at / "batch.parquet",
        "--report",
        path,
        "--engine",
        "local",
    ],
    "token --file": lambda at, path: ["token", "me", "--file", path],
    "build, index": lambda at, path: ["build", at / "source", path, "--key", "id", "--engine", "local"],
}


@pytest.fixture
def at(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "folder").mkdir()
    pq.write_table(ROWS, tmp_path / "source/p.parquet")
    pq.write_table(NEW, tmp_path / "batch.parquet")
    (tmp_path / "keys.csv").write_text("id\na\n")
    (tmp_path / "file").write_text("no tokens")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["id"])
    return tmp_path


def check_text(text: str, path: str) -> None:
    """Check that a text is one line that names the path, and neither quotes an error of Python nor the times of a
    client."""
    assert len(text.splitlines()) == 1
    assert not RAW.search(text), text
    assert not TIMES.search(text), text
    assert any(shown in text for shown in shown_as(path)), text


def shown_as(path: str) -> tuple[str, str]:
    """A path as texts show it: as the place of an error, and in its words."""
    return path.replace("\n", "\\n").replace("\0", "\\x00")[:160], path.replace("\n", " ")


@pytest.mark.parametrize(("call", "kind"), cases(product(CALLS, KINDS)))
def test_a_call_says_what_is_missing_as_an_error_of_gnomon(at: Path, call: str, kind: str) -> None:
    path = str(KINDS[kind](at))
    with pytest.raises(GnomonError) as raised:
        CALLS[call](at, path)
    check_text(str(raised.value), path)
    assert one_line(raised.value) == " ".join(str(raised.value).split())
    assert raised.value.action is not None or raised.value.expected is not None or "; " in str(raised.value)


@pytest.mark.parametrize(("command", "kind"), cases(product(COMMANDS, TYPED)))
def test_a_command_says_what_is_missing_on_one_line(
    at: Path, command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(KINDS[kind](at))
    assert main([str(word) for word in COMMANDS[command](at, path)]) in (2, 3)
    last = capsys.readouterr().err.splitlines()[-1]
    check_text(last, path)
    assert "; " in last


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_cannot_write_says_where(
    at: Path, command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(KINDS[kind](at))
    code = main([str(word) for word in WRITING[command](at, path)])
    said = capsys.readouterr().err.strip().splitlines()
    if kind in ("below a file", "a long name", "below a link to itself"):
        assert code in (2, 3)
    if code:
        check_text(said[-1], os.path.dirname(path))
        assert "; " in said[-1]


GONE: dict[str, Callable[[Path], object]] = {
    "removed": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a broken link": lambda file: (file.unlink(), file.symlink_to("nowhere")),
    "a link to itself": lambda file: (file.unlink(), file.symlink_to(file)),
    "below a file": lambda file: (shutil.rmtree(file.parent), file.parent.write_text("x")),
}


def _appended(at: Path, gone: Callable[[Path], object]) -> Any:
    (at / "batch").mkdir()
    pq.write_table(NEW, at / "batch/x.parquet")
    rows = read_batch(None, str(at / "batch"), str(at / "index"))
    gone(at / "batch/x.parquet")
    return append_new(None, str(at / "index"), rows, "b")


def _fetched(at: Path, gone: Callable[[Path], object]) -> Any:
    index = gnomon.open_index(at / "index")
    gone(at / "source/p.parquet")
    return index.fetch("a")


def _loaded(at: Path, gone: Callable[[Path], object]) -> Any:
    rows = load(None, str(at / "index"), ROWS.select(["id"]))
    gone(at / "source/p.parquet")
    return rows.read_all()


def _without_spec(at: Path, gone: Callable[[Path], object]) -> Any:
    gone(at / "index/_shadow/spec.json")
    return gnomon.open_index(at / "index")


def _looked_up(at: Path, gone: Callable[[Path], object]) -> Any:
    index = gnomon.open_index(at / "index")
    [file] = (at / "index").glob("*.btree.avro")
    gone(file)
    return index.fetch("a")


def _of_table(at: Path, gone: Callable[[Path], object]) -> Any:
    write_deltalake(str(at / "table"), ROWS)
    [file] = (at / "table").glob("*.parquet")
    gone(file)
    return build(None, f"delta:{at}/table", str(at / "new"), ["id"])


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("act", [_appended, _fetched, _loaded, _looked_up, _of_table, _without_spec])
def test_a_file_that_vanishes_between_plan_and_read_is_named(
    at: Path, act: Callable[[Path, Callable[[Path], object]], Any], how: str
) -> None:
    with pytest.raises(GnomonError) as raised:
        act(at, GONE[how])
    check_text(str(raised.value), str(at))
    assert "; " in str(raised.value)


def test_a_file_that_cannot_be_read_is_still_an_error_of_the_system(at: Path) -> None:
    with pytest.raises(OSError, match="mend the links") as raised:
        gnomon.open_index(at / "loop")
    assert isinstance(raised.value, Unreadable)
    assert raised.value.filename == f"{at}/loop/_shadow/spec.json"
