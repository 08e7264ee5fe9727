"""`gnomon build --page-maps` as its user meets it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.commands.build import _with_values
from tests.shadow.make_index import index_source, write_source

PAGES = {"row_group_size": 60, "data_page_size": 100, "write_batch_size": 10, "use_dictionary": False}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An index without page maps."""
    days = {f"dt={day}/a.parquet": pa.table({"k": range(100 * day, 100 * (day + 1))}) for day in range(2)}
    write_source(tmp_path / "source", days, **PAGES)
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_dry_run_lists_the_files_that_have_none(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ("build", lake / "source", lake / "index", "--key", "k", "--dry-run")
    assert run(capsys, *build)[1].startswith("nothing to do")
    code, out, err = run(capsys, *build, "--page-maps")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["unmapped  dt=0/a.parquet", "unmapped  dt=1/a.parquet"]
    assert out.endswith(" 0 dropped; page maps of 2 would be recorded; nothing was written\n")
    shown = json.loads(run(capsys, *build, "--page-maps", "--json")[1])
    assert shown["unmapped"] == ["dt=0/a.parquet", "dt=1/a.parquet"]
    assert run(capsys, *build, "--page-maps", "deep")[:2] == (0, out)
    assert run(capsys, build[0], "--page-maps", *build[1:])[1] == out


def test_a_format_without_pages_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.csv").write_text("k\n1\n")
    code, out, err = run(capsys, "build", tmp_path / "source", tmp_path / "index", "--key", "k", "--page-maps")
    assert (code, out) == (2, "")
    assert err == "gnomon: --page-maps: files of format csv have no page maps; expected parquet, or leave it out\n"
    assert not (tmp_path / "index").exists()


def test_the_option_may_stand_without_a_value_and_before_other_words() -> None:
    assert _with_values(["--page-maps", "a", "b"]) == ["--page-maps=places", "a", "b"]
    assert _with_values(["a", "--page-maps", "deep", "b"]) == ["a", "--page-maps", "deep", "b"]
    assert _with_values(["a", "b", "--page-maps"]) == ["a", "b", "--page-maps=places"]
    assert _with_values(["--", "--page-maps"]) == ["--", "--page-maps"]
    assert _with_values(["--page-maps=deep", "--", "--page-maps"]) == ["--page-maps=deep", "--", "--page-maps"]


@pytest.mark.spark
def test_they_are_recorded_shown_used_and_mended(
    spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = ("build", lake / "source", lake / "index", "--key", "k")
    assert "page maps" not in run(capsys, "inspect", lake / "index")[1]
    code, out, err = run(capsys, *build, "--page-maps")
    assert (code, err.splitlines()[-1]) == (0, "gnomon: page maps")
    assert out.startswith("recorded the page maps of 2 files, ")
    assert out.splitlines()[1].startswith("nothing new: snapshot 2 covers all 200 rows")
    facts = json.loads(run(capsys, "inspect", lake / "index", "--json")[1])["page_maps"]
    assert (facts["recorded"], facts["files"]) == (True, 2)
    assert ", of 2 of 2 source files\n" in run(capsys, "inspect", lake / "index")[1]
    assert ", read the page maps of 2, looked up 202 keys of " in run(capsys, "verify", lake / "index", "--all")[1]

    code, out, err = run(capsys, "get", lake / "index", 7, 107, "--explain")
    explained = [json.loads(line)["source"]["page_maps"] for line in err.splitlines()]
    assert code == 0
    assert [one["reads"] for one in explained] == [1, 1]
    assert sum(one["bytes"] for one in explained) == facts["bytes"]

    for path in (lake / "index/_shadow/page_maps").rglob("*.maps"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))
    code, out, err = run(capsys, "get", lake / "index", 7)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith(f"gnomon: {lake}/index/_shadow/page_maps/")
    assert err.endswith("; run gnomon build INDEX --page-maps, or open the index with page_maps=False\n")
    assert run(capsys, "verify", lake / "index")[0] == 3
    assert json.loads(run(capsys, *build, "--page-maps", "--json")[1])["mapped_files"] == 2
    assert run(capsys, "get", lake / "index", 7)[:2] == (0, '{"k": 7, "dt": "0"}\n')

    out = run(capsys, *build, "--page-maps", "deep")[1]
    assert out.startswith("recorded the page maps of 2 files, ")
    assert run(capsys, *build, "--page-maps", "deep")[1].startswith("nothing new")
    facts = json.loads(run(capsys, "inspect", lake / "index", "--json")[1])["page_maps"]
    assert (facts["recorded"], facts["deep"], facts["files"]) == (True, True, 2)
    assert ", of 2 of 2 source files, with value maps\n" in run(capsys, "inspect", lake / "index")[1]
    assert ", read the page maps of 2, looked up 202 keys of " in run(capsys, "verify", lake / "index", "--all")[1]
    assert run(capsys, "get", lake / "index", 7)[:2] == (0, '{"k": 7, "dt": "0"}\n')
