"""The index and the log of tasks."""

import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.indexer.spark.tasks import LOG_LEVEL, LOGGER, AtSnapshot, open_in_worker
from gnomon.shadow.errors import SnapshotNotFound
from gnomon.shadow.lookup.batch import MatchStats
from tests.shadow.make_index import index_source, write_source


@pytest.mark.parametrize("level", ["INFO", "", "nonsense"])
def test_how_an_index_file_was_asked_goes_to_stderr_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1, 2, 3]})})
    snapshot = index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    monkeypatch.setenv(LOG_LEVEL, level)
    logger = logging.getLogger(LOGGER)
    try:
        index = open_in_worker(AtSnapshot(str(tmp_path / "index"), snapshot.number, snapshot.commit_id))
        list(index.match_pieces(pa.record_batch({"k": [2]}), {}, MatchStats()))
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    said = capsys.readouterr().err
    assert ("INFO gnomon.match" in said and "for 1 keys; 3 entries" in said) == (level == "INFO")


def test_an_index_made_anew_after_the_planning_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": [1, 2, 3], "other": ["a", "b", "c"]})})
    planned = index_source(tmp_path / "source", tmp_path / "index", ["k"], 1)
    shutil.rmtree(tmp_path / "index")
    again = index_source(tmp_path / "source", tmp_path / "index", ["other"], 1)
    assert planned.number == again.number
    with pytest.raises(
        SnapshotNotFound, match=f"built again.*expected commit {planned.commit_id}, found {again.commit_id}"
    ):
        open_in_worker(AtSnapshot(str(tmp_path / "index"), planned.number, planned.commit_id))
    index = open_in_worker(AtSnapshot(str(tmp_path / "index"), again.number, again.commit_id))
    assert index.spec.keys[0].name == "other"
