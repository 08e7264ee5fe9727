"""The commands that keep an index: what they print, where, and their exit codes. None starts Spark."""

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.__main__ import main
from gnomon.commands.maintenance import parse_duration
from gnomon.shadow import UsageError
from gnomon.shadow.commit.append_log import Append, AppendedFile, commit_append, open_log
from gnomon.shadow.metadata.append_records import append_path
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import snapshot_path
from gnomon.shadow.storage import storage_at
from tests.shadow.make_index import index_source, write_source


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An index of two segments: a file of the second partition came later, and one of the first was rewritten."""
    table = pa.table({"k": range(100)})
    write_source(tmp_path / "source", {f"dt=2026-01-0{day}/a.parquet": table for day in (1, 2)})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], buckets=3)
    write_source(tmp_path / "source", {"dt=2026-01-02/b.parquet": table, "dt=2026-01-01/a.parquet": table.slice(0, 60)})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    parsed: dict[str, object] = json.loads(out)
    return parsed


def test_history_shows_each_snapshot_on_a_line(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "compact", lake / "index")
    code, out, err = run(capsys, "history", lake / "index")
    assert (code, err) == (0, "")
    words = [line.split() for line in out.splitlines()]
    assert words[0] == ["snapshot", "committed", "operation", "rows", "segments", "buckets", "what"]
    assert [line[:1] + line[2:6] for line in words[1:]] == [
        ["1", "build", "200", "1", "3"],
        ["2", "build", "260", "2", "3"],
        ["3", "compact", "260", "1", "3"],
    ]
    assert "2 segments replaced" in out
    code, out, err = run(capsys, "history", lake / "index", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert [(record["snapshot"], record["rows"], record["error"]) for record in records] == [
        (1, 200, ""),
        (2, 260, ""),
        (3, 260, ""),
    ]


def test_history_names_a_damaged_snapshot_and_shows_the_others(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = lake / "index" / snapshot_path(1)
    path.write_bytes(path.read_bytes()[:-9])
    code, out, err = run(capsys, "history", lake / "index")
    assert (code, out.count("\n"), err.count("\n")) == (3, 2, 1)
    assert f"{path} at byte" in err


def test_verify_says_what_it_looked_at(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", lake / "index")
    assert (code, err) == (0, "")
    plain, summary = out.splitlines()
    assert plain == "a plain table on the folder shows 3 files beyond the snapshot"
    assert summary.startswith("snapshot 2: sound; read 9 index files (")
    every = json_of(capsys, "verify", lake / "index", "--all")
    assert every["sound"] is True
    assert int(str(every["rows_compared"])) >= 260
    assert "snapshot 1: 1 fault" in run(capsys, "verify", lake / "index", "--snapshot", "1")[1]


def test_verify_prints_each_fault_and_exits_3(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lake / "source/dt=2026-01-02/b.parquet").unlink()
    file = open_view(storage_at(str(lake / "index"))).segments[0].by_bucket["dt=2026-01-02", 0]
    (lake / "index" / file.path).unlink()
    code, out, err = run(capsys, "verify", lake / "index")
    assert (code, err) == (3, "")
    assert f"fault: {lake}/source/dt=2026-01-02/b.parquet: gone since it was indexed" in out
    assert f"fault: {lake}/index/{file.path}: missing, though the snapshot names it" in out
    assert "snapshot 2: 2 faults" in out
    code, out, err = run(capsys, "verify", lake / "index", "--json")
    assert (code, err, len(json.loads(out)["faults"])) == (3, "", 2)


def test_compact_says_what_it_did_and_when_there_is_nothing_to_do(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "compact", lake / "index")
    assert (code, err) == (0, "")
    assert out.startswith("snapshot 3: 2 segments became 1, of 3 buckets; wrote ")
    assert run(capsys, "compact", lake / "index")[1].startswith("nothing to compact: snapshot 3 has 1 segment,")
    assert json_of(capsys, "compact", lake / "index", "--partition", "dt=2026-01-02")["committed"] is False
    assert run(capsys, "compact", lake / "index", "--partition", "dt=2030-01-01")[0] == 2


def test_vacuum_spares_by_age_and_number_and_lists_first(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "compact", lake / "index")
    assert run(capsys, "vacuum", lake / "index")[1] == "nothing to remove; 3 snapshots kept\n"
    assert run(capsys, "vacuum", lake / "index", "--grace", "0s", "--keep", "3")[1].startswith("nothing to remove")
    code, out, _ = run(capsys, "vacuum", lake / "index", "--grace", "0s", "--dry-run")
    assert code == 0
    assert out.splitlines()[0].startswith("_shadow/snapshots/00000000000000000001.json (snapshot, ")
    assert "would remove 2 snapshots, " in out.splitlines()[-1]
    found = json_of(capsys, "vacuum", lake / "index", "--grace", "0s")
    assert (found["dry_run"], found["kept_snapshots"]) == (False, [3])
    assert run(capsys, "history", lake / "index")[1].count("\n") == 2
    assert run(capsys, "get", lake / "index", "7", "--snapshot", "1")[0] == 3


def test_rebucket_changes_the_number_of_buckets(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run(capsys, "get", lake / "index", "7", "99")
    code, out, _ = run(capsys, "rebucket", lake / "index", "--buckets", "8")
    assert (code, out.split(":")[0]) == (0, "snapshot 3")
    assert run(capsys, "get", lake / "index", "7", "99") == before
    assert json_of(capsys, "rebucket", lake / "index", "--buckets", "8")["committed"] is False
    assert run(capsys, "rebucket", lake / "index", "--buckets", "8")[1] == (
        "nothing to do: snapshot 3 has 8 buckets and this layout\n"
    )


def test_an_index_in_ranges_of_keys_is_built_shown_and_made_hashed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    write_source(source, {"a.parquet": pa.table({"k": [*range(90), *[5] * 60]})})
    build = ("build", source, index, "--key", "k", "--order", "range", "--engine", "local")
    assert run(capsys, *build, "--buckets", "10")[0] == 0
    assert "\nbuckets    7 ranges of keys, of " in run(capsys, "inspect", index)[1]
    first = run(capsys, "get", index, "--from", "4", "--limit", "3")
    assert first[1].count("\n") == 3
    write_source(source, {"b.parquet": pa.table({"k": range(200, 300)})})
    assert run(capsys, *build, "--buckets", "10")[0] == 0  # key 5 is more than a bucket: there are fewer
    code, _, err = run(capsys, "build", source, index, "--key", "k", "--order", "hash", "--engine", "local")
    assert (code, f"or run gnomon rebucket {index} --order hash" in err) == (2, True)
    found = json_of(capsys, "inspect", index)
    assert found["order"] == "range"
    assert found["entries_by_bucket"][-1] > 100
    assert json_of(capsys, "rebucket", index, "--order", "range", "--buckets", "5")["committed"]
    assert max(json_of(capsys, "inspect", index)["entries_by_bucket"]) < 100
    assert json_of(capsys, "rebucket", index, "--order", "hash", "--buckets", "5")["buckets"] == 5
    assert run(capsys, "get", index, "--from", "4", "--limit", "3")[1] == first[1]
    assert run(capsys, "verify", index)[0] == 0


def test_rebucket_lays_an_index_out_flat_and_in_folders_again(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run(capsys, "get", lake / "index", "7", "99")
    for layout in ("flat", "partitioned"):
        code, out, _ = run(capsys, "rebucket", lake / "index", f"--{layout}")
        assert (code, out.split()[0]) == (0, "snapshot")
        assert json_of(capsys, "inspect", lake / "index")["layout"] == layout
        assert f"layout     {layout}\n" in run(capsys, "inspect", lake / "index")[1]
        assert run(capsys, "get", lake / "index", "7", "99") == before
        assert run(capsys, "verify", lake / "index", "--all")[0] == 0
    code, _, err = run(capsys, "rebucket", lake / "index")
    assert (code, err) == (2, "gnomon: no change; expected --buckets, --order, --flat or --partitioned\n")


def test_inspect_sums_many_partitions_up_and_lists_those_that_are_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    write_source(source, {f"dt={day:03d}/a.parquet": pa.table({"k": range(day + 1)}) for day in range(60)})
    index_source(source, tmp_path / "index", ["k"], buckets=1)
    out = run(capsys, "inspect", tmp_path / "index")[1]
    assert "partitions 60, from dt=000 to dt=059, of 1 to 60 rows in 1 files each\n" in out
    assert "partition  " not in out
    write_source(source, {f"dt={day:03d}/b.parquet": pa.table({"k": [1]}) for day in range(30)})
    lines = run(capsys, "inspect", tmp_path / "index")[1].splitlines()
    assert sum(line.startswith("partition  ") for line in lines) == 20
    assert "partition  dt=019 20 rows in 1 file, 1 new" in lines
    assert lines[-1] == "           and 10 more that are not covered (--json lists all)"


def test_inspect_shows_statistics_of_the_keys_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = [dt.date(2026, 1, 1 + n % 3) for n in range(30)] + [None]
    rows = pa.table({"id": [n % 7 for n in range(30)] + [None], "day": days})
    write_source(tmp_path / "source", {"a.parquet": rows})
    index_source(tmp_path / "source", tmp_path / "ids", ["id"], buckets=2)
    index_source(tmp_path / "source", tmp_path / "days", ["day", "id"], buckets=2)
    assert "keys  " not in run(capsys, "inspect", tmp_path / "ids")[1]
    assert "statistics" not in json_of(capsys, "inspect", tmp_path / "ids")
    lines = run(capsys, "inspect", tmp_path / "ids", "--stats")[1].splitlines()
    assert "keys       8 distinct keys of 31 rows, 1 with a null" in lines
    assert [line for line in lines if line.startswith(("least", "greatest"))] == ["least      0", "greatest   6"]
    frequent = [line for line in lines if line.startswith("frequent")]
    assert [frequent[0], frequent[-1]] == ["frequent   0 in 5 rows", "frequent   null in 1 row"]
    assert 'least      ["2026-01-01", 0]' in run(capsys, "inspect", tmp_path / "days", "--stats")[1].splitlines()
    facts = json_of(capsys, "inspect", tmp_path / "days", "--stats")["statistics"]
    assert isinstance(facts, dict)
    frequent_keys = facts.pop("frequent")
    assert facts == {
        "rows": 31,
        "distinct_keys": 22,
        "null_rows": 1,
        "least": {"day": "2026-01-01", "id": 0},
        "greatest": {"day": "2026-01-03", "id": 6},
    }
    assert len(frequent_keys) == 10
    assert frequent_keys[0] == {"key": {"day": "2026-01-01", "id": 0}, "rows": 2}


def test_counts_of_one_are_told_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1, 2, 3]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], buckets=1)
    run(capsys, "rebucket", tmp_path / "index", "--buckets", "2")
    assert "1 segment replaced" in run(capsys, "history", tmp_path / "index")[1]
    run(capsys, "vacuum", tmp_path / "index", "--grace", "0s")
    assert "(there is 2 alone)" in run(capsys, "get", tmp_path / "index", "1", "--snapshot", "1")[2]


def test_inspect_shows_skew_coverage_by_partition_and_the_plain_table(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json_of(capsys, "inspect", lake / "index")
    assert facts["plain_table"] == {"equals_snapshot": False, "extra_files": 3, "dead_entries": 0}
    assert facts["coverage_by_partition"] == {
        "dt=2026-01-01": {"rows": 60, "files": 1, "new": 0, "changed": 0, "vanished": 0},
        "dt=2026-01-02": {"rows": 200, "files": 2, "new": 0, "changed": 0, "vanished": 0},
    }
    by_bucket = facts["entries_by_bucket"]
    assert isinstance(by_bucket, list)
    assert facts["skew"] == round(max(by_bucket) * 3 / 260, 3)
    run(capsys, "compact", lake / "index")
    run(capsys, "vacuum", lake / "index", "--grace", "0s")
    write_source(lake / "source", {"dt=2026-01-03/a.parquet": pa.table({"k": [1]})})
    (lake / "source/dt=2026-01-02/b.parquet").unlink()
    _, out, _ = run(capsys, "inspect", lake / "index")
    assert "as table   a plain table on the folder shows what the snapshot holds\n" in out
    assert "partition  dt=2026-01-02 200 rows in 2 files, 1 vanished\n" in out
    assert "partition  dt=2026-01-03 0 rows in 0 files, 1 new\n" in out


def test_inspect_and_verify_speak_of_loads_where_there_are_any(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("inspect", "verify"):
        assert "append" not in run(capsys, command, lake / "index")[1]
    index = storage_at(str(lake / "index"))
    files = (AppendedFile("f/x", "x", 1, 1200),)
    commit_append(index, Append(1, "a", open_log(index).parent, "monday", "", "f", files, {}))
    left = "1, 1 open: batch monday of 1,200 rows (run gnomon dedup to finish it)"
    assert f"\nappends    {left}\n" in run(capsys, "inspect", lake / "index")[1]
    assert run(capsys, "verify", lake / "index")[1].endswith(", read the records of 1 append\n")
    path = lake / "index" / append_path(1)
    path.write_bytes(path.read_bytes()[:-9])
    assert f"\nappends    unknown: {path} at byte " in run(capsys, "inspect", lake / "index")[1]
    code, out, _ = run(capsys, "verify", lake / "index")
    assert (code, f"fault: {path} at " in out) == (3, True)


def test_what_goes_wrong_is_one_line_and_the_right_exit_code(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        *(((name, lake / "nowhere"), 3, "not an index") for name in ("history", "verify", "compact", "vacuum")),
        (("rebucket", lake / "nowhere", "--buckets", "3"), 3, "not an index"),
        (("rebucket", lake / "index"), 2, "expected --buckets, --order, --flat or --partitioned"),
        (("rebucket", lake / "index", "--buckets", "0"), 2, "buckets: expected 1 to 65536, found 0"),
        (("vacuum", lake / "index", "--grace", "soon"), 2, "--grace: expected a number with its unit"),
        (("vacuum", lake / "index", "--keep", "0"), 2, "1 snapshot or more, found"),
        (("verify", lake / "index", "--snapshot", "9"), 3, "snapshot 9 is not there (there are 1 to 2)"),
    ]
    for arguments, expected, says in wrong:
        code, out, err = run(capsys, *arguments)
        assert (code, out, err.count("\n")) == (expected, "", 1), (arguments, err)
        assert says in err


def test_durations_are_numbers_with_a_unit() -> None:
    assert [parse_duration(text) for text in ("90s", "1.5m", "24h", "7d")] == [90, 90, 86400, 604800]
    for wrong in ("", "24", "h", "-1h", "1w", "1h30m", "nan"):
        with pytest.raises(UsageError):
            parse_duration(wrong)


def test_a_file_that_changed_since_an_older_snapshot_is_told_what_helps(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "get", lake / "index", "7", "--snapshot", "1")
    assert code == 3
    assert "query the newest snapshot, and run gnomon build INDEX first where this one is the newest" in err
    write_source(lake / "source", {"dt=2026-01-01/a.parquet": pa.table({"k": range(9)})})
    code, _, err = run(capsys, "get", lake / "index", "7")
    assert (code, "run gnomon build INDEX again" in err) == (3, True)


def test_inspect_and_verify_name_the_lake_table_that_a_source_belongs_to(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lake / "source/_delta_log").mkdir()
    (lake / "source/_delta_log/00000000000000000000.json").write_text("{}")
    code, _, err = run(capsys, "inspect", lake / "source")
    assert (code, "no index; the folder belongs to a Delta Lake table at" in err) == (2, True)
    _, out, _ = run(capsys, "inspect", lake / "index")
    assert "warning    the source belongs to a Delta Lake table at" in out
    assert json_of(capsys, "inspect", lake / "index")["coverage"]["lake_table"] == {  # type: ignore[index]
        "format": "Delta Lake table",
        "root": str(lake / "source"),
        "file": "_delta_log/00000000000000000000.json",
        "as_files": False,
    }
    code, out, _ = run(capsys, "verify", lake / "index")
    assert (code, "the source belongs to a Delta Lake table at" in out) == (3, True)
