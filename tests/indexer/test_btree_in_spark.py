"""Spark and its Java libraries agree with the hashes and the files of `btree`."""

import json
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.btree import format as fmt
from gnomon.btree.hashing import plain_column, spark_hash_columns, xxhash64_columns
from gnomon.indexer.spark import as_frame
from tests.btree.test_hashing import MAKERS, ROWS, random_columns
from tests.btree.test_interop import NAMES, typical_file
from tests.spark_fixtures import to_arrow

pytestmark = pytest.mark.spark

Hashes = dict[tuple[str, ...], tuple[list[int], list[int]]]


def _spark_hashes(spark: SparkSession, columns: dict[str, pa.Array], keys: Sequence[tuple[str, ...]]) -> Hashes:
    """Spark's `hash` and `xxhash64` of each row, for each list of columns."""
    names = {kind: f"c{i}" for i, kind in enumerate(columns)}
    table = pa.table(list(columns.values()), names=list(names.values()))
    frame = as_frame(spark, table, "keys")
    asked = [", ".join(names[kind] for kind in key) for key in keys]
    answer = to_arrow(frame.selectExpr(*[f"{name}({args})" for args in asked for name in ("hash", "xxhash64")]))
    found = [column.to_pylist() for column in answer.columns]
    return {key: (found[2 * i], found[2 * i + 1]) for i, key in enumerate(keys)}


def test_both_hashes_equal_sparks_for_random_values_of_every_type_and_composites_with_nulls(
    spark: SparkSession,
) -> None:
    rnd = random.Random(1)
    columns = random_columns(ROWS)
    composites = {tuple(rnd.sample(list(MAKERS), k=rnd.randint(2, 5))) for _ in range(20)}
    plain = {kind: plain_column(array, kind) for kind, array in columns.items()}
    answers = _spark_hashes(spark, columns, [*((kind,) for kind in MAKERS), *sorted(composites)])
    assert len(answers) == len(MAKERS) + len(composites)
    for key, (murmur, xxh) in answers.items():
        parts = [plain[kind] for kind in key]
        for ours, theirs in ((spark_hash_columns(parts), murmur), (xxhash64_columns(parts), xxh)):
            different = np.flatnonzero(ours != np.array(theirs))
            values = [[columns[kind][row.item()] for kind in key] for row in different[:3]]
            assert not len(different), (key, values)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_the_avro_java_library_reads_the_same_rows(spark: SparkSession, codec: str) -> None:
    data, rows = typical_file(codec, 100)
    avro = spark._jvm.org.apache.avro
    reader = avro.file.DataFileReader(avro.file.SeekableByteArrayInput(data), avro.generic.GenericDatumReader())
    found = []
    while reader.hasNext():
        record = json.loads(reader.next().toString())
        found.append(tuple(record[name] for name in NAMES))
    assert sorted(found, key=lambda row: row[2]) == rows
    assert reader.getMetaString(fmt.CODEC_KEY) == codec
