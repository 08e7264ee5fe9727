"""The error of a Spark task reaches the caller of the job unchanged."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from gnomon.indexer import build, load
from gnomon.indexer.spark.tasks import task_errors
from gnomon.shadow import IndexNotFound, UsageError, open_index
from gnomon.shadow.errors import DamagedSource, UnsupportedFormat

pytestmark = pytest.mark.spark

DECIMALS = pa.array([-1, None, 12_345, 99_999_999_999], pa.decimal128(38, 2))


@pytest.fixture(scope="module")
def unread_by_spark() -> bytes:
    """A sound Parquet file that Spark cannot read: its codec, Brotli, does not come with Spark."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": DECIMALS, "n": [1, 2, 3, 4]}), sink, compression="brotli")
    return sink.getvalue().to_pybytes()


def test_a_build_reads_files_that_spark_cannot_read(
    spark: SparkSession, tmp_path: Path, unread_by_spark: bytes
) -> None:
    source, index = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    (source / "a.parquet").write_bytes(unread_by_spark)
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|Encountered error while reading file"):
        spark.read.parquet(str(source)).select("id").collect()
    build(spark, str(source), index, ["id"])
    opened = open_index(index)
    for i, key in enumerate(DECIMALS.to_pylist()):
        assert opened.fetch({"id": key}) == [{"id": key, "n": i + 1}]


def test_damage_that_a_task_finds_is_told_with_its_path_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    lines = [json.dumps({"id": i}) for i in range(3)]
    (source / "a.jsonl").write_text("\n".join([*lines, "{nothing", *lines]))
    with pytest.raises(DamagedSource) as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/a.jsonl"
    assert caught.value.offset == sum(len(line) + 1 for line in lines)
    assert str(caught.value).startswith(f"{source}/a.jsonl at byte {caught.value.offset}: ")
    with pytest.raises(IndexNotFound):
        open_index(str(tmp_path / "index"))


def test_an_error_keeps_its_path_and_byte_whatever_the_path_is_called(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "team: search; at byte 7: <gnomon-error> €"
    source.mkdir()
    lines = [json.dumps({"id": i}) for i in range(3)]
    (source / "a.jsonl").write_text("\n".join([*lines, "{nothing", *lines]))
    with pytest.raises(DamagedSource) as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/a.jsonl"
    assert caught.value.offset == sum(len(line) + 1 for line in lines)


def test_a_key_that_a_task_refuses_is_the_error_that_it_is_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "source" / "a.parquet")
    build(spark, str(tmp_path / "source"), str(tmp_path / "index"), ["id"])
    key = 'a "quoted\\ <key>'
    with pytest.raises(UsageError) as caught, task_errors():
        load(spark, str(tmp_path / "index"), spark.createDataFrame([(key,)], "id string")).collect()
    assert (caught.value.expected, caught.value.found) == ("bigint", repr(key))
    assert str(caught.value) == f"keys: key column id: expected bigint, found {key!r}"


def test_damage_that_spark_finds_is_told_with_its_path_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    table = pa.table({"id": [f"key {i}" for i in range(1000)]})
    pq.write_table(table, source / "a.parquet", compression="zstd", use_dictionary=False)
    data = bytearray((source / "a.parquet").read_bytes())
    data[100:200] = bytes(100)
    (source / "a.parquet").write_bytes(data)
    with pytest.raises(DamagedSource) as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/a.parquet"
    assert caught.value.offset is not None


def test_damage_that_spark_finds_late_is_told_with_its_path_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    """The damage is in a dictionary, which Spark decodes when its values are used, without an error that names the
    file."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": ["once", "more"] * 500}), source / "a.parquet", compression="none")
    data = (source / "a.parquet").read_bytes()
    entry = b"\x04\x00\x00\x00more"
    assert data.count(entry) == 1
    (source / "a.parquet").write_bytes(data.replace(entry, b"\x10" + entry[1:]))
    with pytest.raises(Exception, match="newLimit > capacity"):
        spark.read.parquet(str(source)).collect()
    with pytest.raises(DamagedSource) as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/a.parquet"


def test_damage_over_which_spark_passes_rows_is_told_with_its_path_and_byte(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark silently reads no row of a row group that seems to lie beyond the file."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": range(100)}), source / "a.parquet", use_dictionary=False)
    data = (source / "a.parquet").read_bytes()
    begin = -8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:-8].replace(b"\x26\x08", b"\x26\xfe\x7f")  # where the data begin: 4, and now 8,191
    (source / "a.parquet").write_bytes(data[:begin] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert spark.read.parquet(str(source)).collect() == []
    with pytest.raises(DamagedSource, match="at 8191, the file has") as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/a.parquet"


def test_text_that_is_none_is_told_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, values in {"a": [b"one", b"two"], "b": [b"three", b"\xff\xfe"]}.items():
        texts = pa.array(values).view(pa.string())
        pq.write_table(pa.table({"id": texts}), source / f"{name}.parquet")
    with pytest.raises(UnsupportedFormat, match="a value is not UTF-8") as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/b.parquet"


def test_a_file_of_another_format_is_named(spark: SparkSession, tmp_path: Path, unread_by_spark: bytes) -> None:
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    (source / "metadata").mkdir()
    (source / "data" / "a.parquet").write_bytes(unread_by_spark)
    (source / "metadata" / "m0.avro").write_bytes(b"Obj\x01\x00" + bytes(32))
    with pytest.raises(UnsupportedFormat, match="a file of format avro among parquet ones") as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/metadata/m0.avro"


def test_a_file_of_another_format_among_text_is_named(
    spark: SparkSession, tmp_path: Path, unread_by_spark: bytes
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("id\n1\n")
    (source / "b").write_bytes(unread_by_spark)
    with pytest.raises(UnsupportedFormat, match="a file of format parquet among csv ones") as caught:
        build(spark, str(source), str(tmp_path / "index"), ["id"])
    assert caught.value.path == f"{source}/b"


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(PythonException, match="ValueError: no error of ours"), task_errors():
        raise PythonException("Traceback (most recent call last):\nValueError: no error of ours")
    with pytest.raises(KeyError), task_errors():
        raise KeyError("gnomon.sources.errors.DamagedSource: x at byte 1: y")
