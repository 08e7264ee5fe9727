"""Appends to lake tables in the log: their planned commits, and appends that were given up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from gnomon.shadow.commit.append_log import abandon, commit_append, open_log, plan_commit
from gnomon.shadow.errors import DamagedMetadata, NewerFormat
from gnomon.shadow.metadata.append_records import append_path, read_append
from gnomon.shadow.metadata.json_files import encode
from gnomon.shadow.storage import LocalStorage
from gnomon.shadow.tables import NewFile, TableCommit, commit_to_table
from tests.shadow.commit.test_append_log import begun

ROWS = pa.table({"id": pa.array([1], pa.int64())})
KEYS = {"key 0", "key 1"}


@pytest.fixture
def stores(tmp_path: Path) -> tuple[LocalStorage, LocalStorage]:
    """An index, and the folder of a Delta table."""
    write_deltalake(str(tmp_path / "table"), ROWS)
    return LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "table"))


def planned(storage: LocalStorage, table: LocalStorage, number: int) -> TableCommit:
    uuid = str(DeltaTable(table.root).metadata().id)
    return replace(plan_commit(storage, number, f"delta:{table.root}", uuid), partitions=("", "p=1"))


def test_a_planned_commit_is_read_back_as_it_was_put(stores: tuple[LocalStorage, LocalStorage]) -> None:
    storage, table = stores
    append = begun(storage, table, "a", KEYS)
    append = replace(append, table=planned(storage, table, 1))
    assert commit_append(storage, append)
    assert read_append(storage, 1) == append


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"number": "1"}, DamagedMetadata),
        ({"partitions": [""]}, DamagedMetadata),
        ({"partitions": "ab"}, DamagedMetadata),
        ({"writer": None}, DamagedMetadata),
        ({"of a later version": 1}, NewerFormat),
    ],
)
def test_a_damaged_planned_commit_is_an_error(
    stores: tuple[LocalStorage, LocalStorage], change: dict[str, Any], error: type[Exception]
) -> None:
    storage, table = stores
    append = begun(storage, table, "a", KEYS)
    commit_append(storage, replace(append, table=planned(storage, table, 1)))
    path = Path(storage.root) / append_path(1)
    content = json.loads(path.read_text())
    del content["crc32"]
    content["table"] |= change
    path.write_bytes(encode(content))
    with pytest.raises(error, match=f"{append_path(1)}.* (not the commit of an append|does not know)"):
        read_append(storage, 1)


def test_an_append_that_is_given_up_is_void_and_its_number_in_the_table_is_not_used_again(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    storage, table = stores
    first = begun(storage, table, "a", KEYS)
    first = replace(first, table=planned(storage, table, 1))
    assert first.table is not None
    assert commit_append(storage, first)
    abandon(storage, table, first)
    log = open_log(storage)
    assert (log.open, log.void) == ((), {1})
    second = planned(storage, table, 2)
    assert (second.writer, second.number) == (first.table.writer, first.table.number + 1)
    append = replace(begun(storage, table, "a", KEYS, "again"), parent=log.parent, number=2, table=second)
    assert commit_append(storage, append)
    assert [one.batch for one in open_log(storage).open] == ["a"]


def test_a_planned_number_is_higher_than_that_of_every_commit_of_the_index(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    storage, table = stores
    open_log(storage)
    now = planned(storage, table, 1)
    path = Path(table.root) / "new.parquet"
    pq.write_table(ROWS, path)
    ahead = replace(now, number=7, partitions=("",))
    commit_to_table(ahead, [NewFile("new.parquet", path.stat().st_size, 1, "")])
    assert planned(storage, table, 1).number == 8
