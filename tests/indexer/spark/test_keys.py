"""indexer/keys/columns.py: keys of DataFrames in the types of an index, read as a load in this process reads them."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.commands.failures import one_line
from gnomon.indexer.spark import with_keys
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import Folder
from gnomon.shadow.metadata.spec import IndexSpec, KeyColumn
from gnomon.shadow.values import key_names, typed_keys
from tests.shadow.values.test_key_columns import TEXTS
from tests.spark_fixtures import to_arrow

NAMES = [f"k.{i}" for i in range(len(TEXTS))]
ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
SESSIONS = [("America/New_York", "false"), ("Asia/Kolkata", "true")]


def spec_of(*places: int) -> IndexSpec:
    keys = tuple(KeyColumn(NAMES[i], TEXTS[i][0], source_type=TEXTS[i][1]) for i in places)
    return IndexSpec(Folder("/s"), "parquet", (), keys, (), 1)


@pytest.fixture
def sessions(spark: SparkSession) -> Iterator[Iterator[None]]:
    """Each step is the session with other settings."""
    before = {name: spark.conf.get(name) for name in (ZONE, ANSI)}

    def settings() -> Iterator[None]:
        for zone, ansi in SESSIONS:
            spark.conf.set(ZONE, zone)
            spark.conf.set(ANSI, ansi)
            yield

    yield settings()
    for name, value in before.items():
        spark.conf.set(name, value or "")


def test_text_is_one_key_in_every_session_and_in_this_process(spark: SparkSession, sessions: Iterator[None]) -> None:
    spec, rows = spec_of(*range(len(TEXTS))), max(len(texts) for _, _, texts, _ in TEXTS)
    columns = [pa.array([*texts, *[None] * (rows - len(texts))], pa.string()) for _, _, texts, _ in TEXTS]
    wanted, held = typed_keys(pa.RecordBatch.from_arrays(columns, NAMES), spec, "keys")
    assert held.all()
    frame = spark.createDataFrame(
        list(zip(*(one.to_pylist() for one in columns), strict=True)), ", ".join(f"`{name}` string" for name in NAMES)
    )
    for _ in sessions:
        found = to_arrow(with_keys(frame, spec, "keys").coalesce(1))
        for i, (name, array) in enumerate(zip(key_names(spec), wanted, strict=True)):
            assert found.column(name).combine_chunks().cast(array.type).equals(array), (TEXTS[i], spark.conf.get(ZONE))


def test_other_text_is_the_same_error_in_every_session_and_in_this_process(
    spark: SparkSession, sessions: Iterator[None]
) -> None:
    refused = [i for i, (kind, _, _, _) in enumerate(TEXTS) if kind in ("timestamp", "binary")]
    for i, _ in zip(refused, sessions, strict=False):
        spec, text = spec_of(i), TEXTS[i][3][0]
        with pytest.raises(UsageError) as here:
            typed_keys(pa.record_batch({NAMES[i]: [text]}), spec, "keys")
        frame = with_keys(spark.createDataFrame([(text,)], f"`{NAMES[i]}` string"), spec, "keys")
        with pytest.raises(Exception, match="expected") as there:
            frame.collect()
        assert one_line(there.value) == str(here.value)
