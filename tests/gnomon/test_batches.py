"""The batches that `gnomon dedup` is handed."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.__main__ import main
from gnomon.shadow import open_index
from tests.shadow.make_index import index_source, write_source


def dedup(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["dedup", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()[-1] if captured.err else ""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "day": ["a", "b"]})
    write_source(tmp_path / "source", {"dt=2026-01-01/a.parquet": table})
    index_source(tmp_path / "source", tmp_path / "index", ["id"], 1)
    return tmp_path / "index"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_batch_of_text_is_appended_to_a_source_of_parquet_and_a_copy_of_it_is_known(
    tmp_path: Path, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = tmp_path / "batch/dt=2026-01-02"
    batch.mkdir(parents=True)
    (batch / "a.csv").write_text("day,id\nc,2\nd,3\n")
    code, out, _ = dedup(capsys, index, batch.parent, "--json")
    assert (code, json.loads(out)["rows_read"], json.loads(out)["appended"]) == (0, 2, 1)
    assert open_index(str(index)).fetch(3) == [{"id": 3, "day": "d", "dt": "2026-01-02"}]
    shutil.copytree(batch.parent, tmp_path / "copy")
    code, out, _ = dedup(capsys, index, tmp_path / "copy")
    assert (code, "was appended before" in out) == (0, True)
    (batch / "a.csv").write_text("day,id\nc,x\n")
    code, _, err = dedup(capsys, index, batch.parent)
    assert (code, err.endswith("a.csv at byte 7: column id: expected an integer of 64 bits, found 'x'")) == (3, True)


def test_a_batch_that_is_not_there_is_refused_before_spark_starts(
    tmp_path: Path, index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.commands.spark.spark_session", None)
    (tmp_path / "none").mkdir()
    for place, says in (("nowhere", "nowhere: no such file or folder; expected a batch"), ("none", "no data files")):
        code, out, err = dedup(capsys, index, tmp_path / place)
        assert (code, out, says in err) == (3, "", True), err


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_command_makes_source_and_index_and_says_what_became_of_each_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, report = tmp_path / "index", tmp_path / "report.parquet"
    (tmp_path / "a.csv").write_text("id,dt,n\n1,x,1\n2,x,2\n1,y,3\n,y,4\n")
    (tmp_path / "b.csv").write_text("id,dt,n\n2,y,5\n3,y,6\n,y,7\n")
    new = ("--source", tmp_path / "source", "--key", "id", "--partition-by", "dt", "--source-format", "avro")
    code, out, _ = dedup(capsys, index, tmp_path / "a.csv", *new, "--batch-id", "a", "--null-keys", "keep")
    assert (code, out.splitlines()[2:]) == (
        0,
        [
            "  dt=x: 2 of 2 rows; already in the source 0, copies in the batch 0",
            "  dt=y: 1 of 2 rows; already in the source 0, copies in the batch 1, null in their key 1",
        ],
    )
    assert out.startswith(f"made the index of {tmp_path}/source\nsnapshot 1: 3 of 4 rows appended in 2 files, in ")
    assert {path.suffix for path in (tmp_path / "source").rglob("part-*")} == {".avro"}
    asked = ("--batch-id", "b", "--null-keys", "reject", "--report", report, "--order-by", "n desc")
    code, out, _ = dedup(capsys, index, tmp_path / "b.csv", *asked)
    assert out.splitlines()[1:] == [
        "  dt=y: 1 of 3 rows; already in the source 1, copies in the batch 0, rejected for a null in their key 1",
        f"2 rows not appended, in {report}",
    ]
    rows = pq.read_table(report).to_pylist()
    assert sorted((row["id"] or "", row["dedup_reason"], row["data_filename"] is None) for row in rows) == [
        ("", "null in key", True),
        ("2", "already present", False),
    ]
    code, out, _ = dedup(capsys, index, tmp_path / "b.csv", *asked[:4], "--report", tmp_path / "other", "--full")
    assert (code, out) == (0, "batch 'b' was appended before, by snapshot 2: nothing to do; there is no report of it\n")
    code, _, err = dedup(capsys, index, tmp_path / "a.csv", "--batch-id", "b")
    assert (code, "batch 'b' was appended by snapshot 2 with other rows: expected 3 of digest" in err) == (2, True), err


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (
            (),
            3,
            "nowhere: no index there; run gnomon build SOURCE INDEX --key KEY, or gnomon dedup with --source and --key",
        ),
        (("--source", "s"), 2, "--key: expected a key column of the source"),
        (("--option", "sep"), 2, "--option: expected name=value, found 'sep'"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.setattr("gnomon.commands.spark.spark_session", None)
    (tmp_path / "a.csv").write_text("id\n1\n")
    found, _, err = dedup(capsys, tmp_path / "nowhere", tmp_path / "a.csv", *more)
    assert (found, says in err) == (code, True), err
