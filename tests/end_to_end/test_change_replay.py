"""Deletes, upserts and change feeds of lake tables while programs die and race, and others change the tables: every
version has the rows that plain Python expects, each change is there once, and nothing is left."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.end_to_end.killable import Killable
from tests.end_to_end.replay import Figures
from tests.end_to_end.replay_changes import ChangeReplay
from tests.end_to_end.replay_targets import DeltaTarget, Iceberg3Target, IcebergTarget, LakeTable
from tests.jobs.dedup.lake_tables import configure, here

Tell = Callable[[str], None]

SEED = "GNOMON_REPLAY_SEED"  # replaces the fixed seed
CHANGES, KILLS = "GNOMON_REPLAY_CHANGES", "GNOMON_REPLAY_KILLS"  # numbers for the long run
REWRITTEN = {f"write.{one}.mode": "copy-on-write" for one in ("delete", "update", "merge")}
KINDS = ["delta vectors", "delta rewritten", "iceberg positions", "iceberg rewritten"]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """A function that prints the progress of a long run."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)

    return tell


def table(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LakeTable:
    if kind.startswith("delta"):
        vectors = {"delta.enableDeletionVectors": "true"} if kind == "delta vectors" else {}
        return DeltaTarget(folder / "table", {**vectors, "delta.checkpointInterval": "7"})
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return IcebergTarget(here(folder, monkeypatch), REWRITTEN if kind == "iceberg rewritten" else None)


def rest_table(address: str, mode: str, database: str, monkeypatch: pytest.MonkeyPatch) -> LakeTable:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    configure(monkeypatch, type="rest", uri=address)
    return Iceberg3Target(load_catalog("here"), REWRITTEN if mode == "rewritten" else {}, database)


def replayed(target: LakeTable, folder: Path, seed: int, changes: int, kills: int, tell: Tell) -> Figures:
    begin = time.monotonic()
    names = ("one", "two", "three")[: 2 if changes < ChangeReplay.night else 3]  # a build at night is the third
    workers = [Killable(folder, name, is_local=True) for name in names]
    replay = ChangeReplay(target, folder, seed, changes, kills, tell)
    try:
        replay.run(workers)
        replay.finish(workers[0])
    finally:
        for worker in workers:
            worker.close()
    figures = replay.check()
    figures.starts = sum(worker.starts for worker in workers)
    figures.seconds = time.monotonic() - begin
    tell(figures.report())
    assert (figures.keys_wrong, figures.faults) == (0, [])
    assert figures.kills.total() >= kills
    return figures


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_changes_with_races(kind: str, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed(table(kind, tmp_path, monkeypatch), tmp_path, 5, changes=3, kills=0, tell=tell)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_changes_with_kills_and_races(
    kind: str, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(table(kind, tmp_path, monkeypatch), tmp_path, tell)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["vectors", "rewritten"])
def test_many_changes_of_version_3_in_a_rest_catalog(
    iceberg_rest: str, mode: str, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(rest_table(iceberg_rest, mode, tmp_path.name.replace("-", "_"), monkeypatch), tmp_path, tell)


def many(target: LakeTable, folder: Path, tell: Tell) -> None:
    seed, changes, kills = (
        int(os.environ.get(name, default)) for name, default in ((SEED, "1"), (CHANGES, "60"), (KILLS, "30"))
    )
    replayed(target, folder, seed, changes, kills, tell)
