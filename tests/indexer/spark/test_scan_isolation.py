"""Scans of one Python source that Spark would plan as one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

from gnomon.indexer import register
from gnomon.indexer.spark import session as scan_isolation
from gnomon.indexer.spark.session import RULE, keep_scans_apart
from tests.indexer.lakes import crawl, explained

pytestmark = pytest.mark.spark


class Numbers(DataSource):
    """The numbers 0, 1, 2, 3. A filter `n = i` leaves one task with one row."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    wanted: int | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        taken = [one for one in filters if isinstance(one, EqualTo)]
        self.wanted = taken[0].value if taken else None
        return [one for one in filters if one not in taken]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(i) for i in range(4) if self.wanted in (None, i)]

    def read(self, partition: InputPartition) -> object:
        yield (partition.value,)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A separate session, made active: Spark looks Python sources up in the active one."""
    other = spark.newSession()
    sessions = getattr(getattr(spark._jvm, "SparkSession$"), "MODULE$")
    sessions.setActiveSession(other._jsparkSession)
    yield other
    sessions.setActiveSession(spark._jsparkSession)


def test_the_rule_keeps_the_scans_of_any_source_apart(session: SparkSession) -> None:
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert keep_scans_apart(session, "numbers")
    session.dataSource.register(Numbers)
    table = session.read.format("numbers").load()
    one, two = table.where("n = 1"), table.where("n = 2")
    assert sorted(row.n for row in one.union(two).union(table).collect()) == [0, 1, 1, 2, 2, 3]
    assert table.count() == 4
    assert "PushedFilters: [EqualTo(n,1)]" in explained(one)


def test_the_rule_is_added_once(session: SparkSession) -> None:
    assert keep_scans_apart(session, "numbers")
    for _ in range(2):
        register(session)
    rules = session._jsparkSession.experimental().extraOptimizations()
    assert rules.mkString(" ") == f"{RULE}(numbers) {RULE}(gnomon)"


def test_where_the_rule_cannot_be_made_nothing_is_pruned_and_the_rows_are_right(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crawl(tmp_path, ["url"], flat=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / scan_isolation.SOURCE).write_text("class {")
    monkeypatch.setattr(scan_isolation, "files", lambda package: tmp_path / "broken")
    register(session)
    assert "filters will not prune: the rule that plans each scan by itself cannot be made" in caplog.text
    table = session.read.format("gnomon").load(str(tmp_path / "index"))
    one, two = table.where("url = 'https://é/3'"), table.where("url = 'https://é/4'")
    total = table.count()
    assert 0 < one.count() < total
    assert one.union(two).count() == one.count() + two.count()
    assert table.count() == total
