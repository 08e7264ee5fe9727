"""After a bit of an index was flipped, `gnomon verify` names a command, and that command repairs the index."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gnomon.__main__ import main
from gnomon.base.errors import Action
from gnomon.indexer import build, write_btree
from gnomon.shadow import DamagedIndexFile, open_index

COMMAND = re.compile(r"run gnomon ([^,;]*)")
DAMAGED = {
    "index file": ("*.btree.avro", Action.BUILD_FULL),
    "list of a segment": ("_shadow/segments/*.avro", Action.BUILD_FULL),
    "snapshot": ("_shadow/snapshots/*.json", Action.BUILD_FULL),
    "spec": ("_shadow/spec.json", Action.BUILD_FULL),
    "key filter": ("_shadow/filters/**/*.filter", Action.BUILD_FULL_OR_NO_FILTERS),
    "page maps": ("_shadow/page_maps/**/*.maps", Action.BUILD_PAGE_MAPS),
}

LOCAL = {"build": ["--engine", "local"]}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A source of 500 rows, and its index with page maps."""
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": range(500), "n": range(500)}), tmp_path / "source" / "a.parquet")
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["id"], page_maps=True)
    return tmp_path


def flip(folder: Path, pattern: str) -> None:
    """Flip the lowest bit in the middle of the file."""
    [path] = folder.glob(pattern)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", DAMAGED)
def test_the_command_that_verify_names_mends_a_flipped_byte(
    lake: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pattern, action = DAMAGED[name]
    flip(lake / "index", pattern)
    assert main(["verify", str(lake / "index"), "--json"]) == 3
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [fault["action"] for fault in faults] == [str(action)] * len(faults)
    assert main(["verify", str(lake / "index")]) == 3
    assert f"what to do about {len(faults)} fault: {action}" in capsys.readouterr().out

    [command] = COMMAND.findall(str(action))
    assert main([*command.replace("INDEX", str(lake / "index")).split(), *LOCAL.get(command.split()[0], [])]) == 0
    assert main(["verify", str(lake / "index"), "--all"]) == 0
    assert open_index(str(lake / "index")).fetch(7) == [{"id": 7, "n": 7}]


def test_a_flipped_byte_of_a_folder_of_values_is_mended_by_writing_it_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(100).selectExpr("id", "id * 2 as n")
    folder = str(tmp_path / "values")
    write_btree(rows, folder, ["id"])
    flip(tmp_path / "values", "*.btree.avro")
    with pytest.raises(DamagedIndexFile) as caught:
        open_index(folder).get(7)
    assert caught.value.action is Action.WRITE_VALUES
    assert main(["verify", folder, "--json"]) == 3
    [fault] = json.loads(capsys.readouterr().out)["faults"]
    assert fault["action"] == str(Action.WRITE_VALUES)
    write_btree(rows, folder, ["id"], mode="overwrite")
    assert main(["verify", folder]) == 0
