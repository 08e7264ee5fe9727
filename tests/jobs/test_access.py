"""`gnomon inspect --check-access`: what jobs may do at a place, and which step is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from gnomon import UsageError, build, open_index
from gnomon.commands.exit_codes import FAILED
from gnomon.commands.inspect import app
from gnomon.jobs.files import check_access
from gnomon.jobs.files.access import CLOCK, CREATE, LIST, READ, TABLE, credentials_of
from gnomon.shadow.storage import storage_at
from tests.stores.web import WebServer

ROWS = pa.table({"k": range(100)})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    pq.write_table(ROWS, tmp_path / "lake/a.parquet")
    return tmp_path / "lake"


def test_a_source_is_read_and_written_and_left_as_it_was(lake: Path) -> None:
    access = check_access(str(lake))
    assert (set(access.found), access.refused) == ({LIST, READ, CREATE, CLOCK}, {})
    assert access.can_read
    assert access.can_write
    assert [one.name for one in lake.iterdir()] == ["a.parquet"]
    assert check_access(str(lake / "a.parquet")).can_read
    build(None, str(lake), str(lake.parent / "index"), ["k"])
    before = sorted(str(one) for one in (lake.parent / "index").rglob("*") if one.is_file())
    assert check_access(str(lake.parent / "index")).can_write
    assert sorted(str(one) for one in (lake.parent / "index").rglob("*") if one.is_file()) == before
    assert open_index(str(lake.parent / "index")).fetch(5) == [{"k": 5}]


def test_a_place_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    access = check_access(str(tmp_path / "nowhere"))
    assert "no such file or folder" in access.refused[LIST]
    assert (access.can_read, access.can_write) == (False, True)
    assert not (tmp_path / "nowhere").exists()


def test_a_lake_table_is_read_by_its_metadata(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), ROWS)
    access = check_access(f"delta:{tmp_path}/table")
    assert access.found[TABLE] == "version 0, 1 files"
    assert READ in access.found
    lost = check_access(f"delta:{tmp_path}/none")
    assert (lost.can_read, lost.can_write, list(lost.refused)) == (False, False, [TABLE])
    with pytest.raises(UsageError, match="a table of the catalog is found by Spark"):
        check_access("table:db.name")


def test_a_store_without_access_says_which_step_it_refuses(
    s3_root: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_at(s3_root).put_new("a.parquet", [(lake / "a.parquet").read_bytes()])
    access = check_access(s3_root)
    assert (access.refused, access.can_read, access.can_write) == ({}, True, True)
    assert [one.path for one in storage_at(s3_root).list(hidden=True)] == ["a.parquet"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of today")
    access = check_access(s3_root)
    assert set(access.refused) == {LIST, CREATE}
    assert "another" not in str(access)
    assert "of today" not in str(access)


def test_files_of_the_web_are_read_only(lake: Path) -> None:
    with WebServer() as web:
        web.put("/a.parquet", (lake / "a.parquet").read_bytes())
        access = check_access(f"{web.address}/a.parquet")
    assert (access.can_read, access.can_write) == (True, False)


def test_credentials_are_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert credentials_of("s3://b/p").startswith("none in the environment")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/secret")
    assert credentials_of("s3://b").endswith("renewed from the file that it names")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    assert credentials_of("s3://b") == "AWS_ACCESS_KEY_ID of the environment, without an end"
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert credentials_of("s3://b").endswith("until a time that they do not tell")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2026-11-28T04:00:00Z")
    assert credentials_of("s3://b").endswith("AWS_SESSION_TOKEN of the environment, until 2026-11-28T04:00:00Z")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2024&se=2026-12-01T00%3A00%3A00Z&sig=hidden")
    assert credentials_of("az://b") == "AZURE_STORAGE_SAS_TOKEN of the environment, until 2026-12-01T00:00:00Z"


def test_the_command_prints_each_step_and_fails_without_reads(lake: Path) -> None:
    found = CliRunner().invoke(app, ["inspect", "--check-access", str(lake)])
    assert (found.exit_code, found.output.count("  ok       "), found.output.count("refused  ")) == (0, 4, 0)
    lost = CliRunner().invoke(app, ["inspect", "--check-access", "--json", str(lake / "nowhere")])
    assert (lost.exit_code, json.loads(lost.output)["can_read"]) == (FAILED, False)


@pytest.mark.nightly
def test_each_store_is_written_and_left_as_it_was(remote_root: str, lake: Path) -> None:
    storage_at(remote_root).put_new("a.parquet", [(lake / "a.parquet").read_bytes()])
    access = check_access(remote_root)
    assert (access.refused, access.can_read, access.can_write) == ({}, True, True)
    assert [one.path for one in storage_at(remote_root).list(hidden=True)] == ["a.parquet"]
