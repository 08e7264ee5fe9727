"""Rows by pointers, where the file changes meanwhile, and where Dione's pointers lead to no row."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.load import FILE, OFFSET, SIZE, SUB_OFFSET, FetchCounters, OutputColumns, RowReader
from gnomon.shadow.errors import StalePointer
from gnomon.shadow.rows_of_files import NamedFiles

ROWS = 20
OF_DIONE = -1  # the size in its pointers to Parquet rows


def read(files: NamedFiles, path: Path, pointers: list[tuple[int, int]], size: int, report: bool) -> list[Any]:
    """The rows of pointers (offset and sub-offset) of one size, as (value, error) with `report`."""
    schema = pa.schema([("v", pa.string()), *([("data_error", pa.string())] if report else [])])
    output = OutputColumns((), ("v",), {}, schema, report, lambda array, *_: array)
    offsets, sub_offsets = zip(*pointers, strict=True)
    run = pa.record_batch(
        {
            FILE: [str(path)] * len(pointers),
            OFFSET: pa.array(offsets, pa.int64()),
            SUB_OFFSET: pa.array(sub_offsets, pa.int32()),
            SIZE: pa.array([size] * len(pointers), pa.int32()),
        }
    )
    counters = FetchCounters()
    return [tuple(row.values()) for batch in RowReader(files, output, counters).rows(run) for row in batch.to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with row groups of five rows."""
    pq.write_table(pa.table({"v": [f"old {i}" for i in range(ROWS)]}), tmp_path / "a.parquet", row_group_size=5)
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize(
    ("step", "size"),
    [("from_dione", OF_DIONE), ("units", OF_DIONE), ("units", 5), ("row_bytes", OF_DIONE), ("row_bytes", 5)],
)
def test_a_file_that_is_replaced_while_it_is_read_gives_no_row_of_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, rows: int, size: int
) -> None:
    pointers = [(row // 5, row % 5) if size == OF_DIONE else (row, 0) for row in range(rows)]
    original = getattr(NamedFiles, step)

    def replaced(files: NamedFiles, *args: Any) -> Any:
        found = original(files, *args)
        if not path.with_name("b.parquet").exists():
            new = pa.table({"v": [f"new {i}" for i in range(ROWS)]})
            pq.write_table(new, path.with_name("b.parquet"), row_group_size=10)
            os.replace(path.with_name("b.parquet"), path)
            path.with_name("b.parquet").touch()
        return found

    monkeypatch.setattr(NamedFiles, step, replaced)
    for value, error in read(NamedFiles("parquet"), path, pointers, size, report=True):
        assert value is None
        assert "the file changed while it was read" in error
    path.with_name("b.parquet").unlink()
    with pytest.raises(StalePointer, match="the file changed while it was read"):
        read(NamedFiles("parquet"), path, pointers, size, report=False)


def test_of_diones_pointers_only_those_without_a_row_are_unreadable(path: Path) -> None:
    pointers = [(0, 0), (0, 7), (1, 2), (3, 4), (9, 1)]
    found = read(NamedFiles("parquet"), path, pointers, OF_DIONE, report=True)
    right = sorted(value for value, error in found if error is None)
    assert right == ["old 0", "old 19", "old 7"]
    errors = sorted(error for value, error in found if value is None)
    assert [error.rpartition("pointer ")[2] for error in errors] == ["(0, 7)", "(9, 1)"]
    assert all(str(path) in error and "no row there" in error for error in errors)
    with pytest.raises(StalePointer, match="no row 7 in row group 0"):
        read(NamedFiles("parquet"), path, pointers, OF_DIONE, report=False)
    assert read(NamedFiles("parquet"), path, [(9, 1)], OF_DIONE, report=True)[0][0] is None
