"""A catalog table, from the build command to the service."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.service.settings.table import Settings
from gnomon.shadow import open_index
from tests.indexer.catalog_tables import COLUMNS, rows, write
from tests.service.lake import Client

pytestmark = pytest.mark.spark


def test_the_command_indexes_a_table_and_http_answers_in_its_types(
    spark: SparkSession, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, index, far = f"{database}.crawl", str(tmp_path / "index"), tmp_path / "far away"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) PARTITIONED BY (dt DATE, n1 BIGINT) STORED AS PARQUET")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (dt='2020-10-04', n1=7) LOCATION '{far}'")
    write(far, rows(0, 10))
    command = ["build", f"table:{table}", index, "--key", "url"]
    assert main([*command, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["source"], planned["snapshot"]) == (f"table:{table}", None)
    assert [new["path"] for new in planned["new"]] == [f"{far}/a.parquet"]
    assert main(command) == 0
    assert main([*command, "--dry-run"]) == 0
    assert f"nothing to do: snapshot 1 covers table:{table} as it is now" in capsys.readouterr().out
    assert main(["inspect", index]) == 0
    shown = capsys.readouterr().out
    assert f"source     table {table} at {tmp_path}/database/crawl (parquet, 1 file)" in shown
    assert (
        "complete: every file of the source in its current state "
        "(only a build sees partitions that are new in the catalog)" in shown
    )

    client = Client(Settings(indexes=[index]))
    wanted = {"url": "u3", "n": 3, "html": "<p>3</p>", "dt": "2020-10-04", "n1": 7}
    assert client.get("/rows/u3?_where=n1=007&_where=dt=2020-10-04").json()["rows"] == [wanted]
    absent = client.get("/rows/u3?_where=n1=8")
    assert (absent.status_code, "no partition has n1=8" in absent.json()["detail"]) == (400, True)
    wrong = client.get("/rows/u3?_where=n1=seven")
    assert (wrong.status_code, "column n1: expected bigint" in wrong.json()["detail"]) == (400, True)
    write(far, rows(3, 9))
    stale = client.get("/rows/u3")
    assert stale.status_code == 409
    assert str(tmp_path) not in stale.text
    assert main(["dedup", index, str(far)]) == 2
    assert "columns are not the source's: dt is missing; n1 is missing; nothing was written" in capsys.readouterr().err
    write(tmp_path / "batch/dt=2020-10-05/n1=8", rows(0, 12))
    assert main(["dedup", index, str(tmp_path / "batch")]) == 0
    assert "dt=2020-10-05/n1=8: 4 of 12 rows" in capsys.readouterr().out
    assert str(open_index(index).fetch("u9")[0]["dt"]) == "2020-10-05"
    assert main(["build", "table:no.such", str(tmp_path / "other"), "--key", "url"]) == 3
    assert "table:no.such: not in the catalog of this Spark session" in capsys.readouterr().err
