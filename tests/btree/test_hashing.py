"""The hash is Spark's own."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from btree.hashing import bucket_of, spark_hash, unscaled_bytes
from btree.keys import Key, Stored, to_stored
from tests.btree.files import arrow_column

GOLDEN = Path(__file__).parents[1] / "golden" / "spark_hashes.jsonl"
ALPHABET = "abcXYZ019 -_/éßñ日本語🙂😀\u0000\uffff\U0010ffff"


def test_the_golden_hashes_are_ours() -> None:
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        key = tuple(to_stored(part, kind, "k") for part, kind in zip(row["key"], row["types"], strict=True))
        assert spark_hash(key, row["types"]) == row["hash"], line


def test_a_bucket_is_never_negative() -> None:
    assert {bucket_of((n,), ["int"], 7) for n in range(100)} == set(range(7))
    assert bucket_of((1,), ["int"], 8) == spark_hash((1,), ["int"]) % 8


def test_int_and_bigint_hash_differently_but_small_ints_alike() -> None:
    assert spark_hash((5,), ["int"]) != spark_hash((5,), ["bigint"])
    assert spark_hash((5,), ["int"]) == spark_hash((5,), ["tinyint"]) == spark_hash((5,), ["smallint"])


def test_minus_zero_and_every_nan_hash_as_one_value() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    for kind in ("float", "double"):
        assert spark_hash((-0.0,), [kind]) == spark_hash((0.0,), [kind])
        assert spark_hash((other_nan,), [kind]) == spark_hash((float("nan"),), [kind])


def test_unscaled_bytes_are_the_shortest() -> None:
    assert [unscaled_bytes(n).hex() for n in (0, 127, 128, -128, -129, 255)] == [
        "00",
        "7f",
        "0080",
        "80",
        "ff7f",
        "00ff",
    ]


def _text(rnd: random.Random) -> str:
    return "".join(rnd.choices(ALPHABET, k=rnd.choice([0, 1, 2, 3, 4, 5, 8, 17, 60, 300])))


def _integer(bits: int) -> Callable[[random.Random], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return lambda rnd: rnd.choice([low, high, 0, -1]) if rnd.random() < 0.01 else rnd.randint(low, high)


def _decimal(precision: int) -> Callable[[random.Random], int]:
    return lambda rnd: rnd.choice([1, -1]) * rnd.randrange(10 ** rnd.randint(1, precision))


def _float(rnd: random.Random) -> float:
    special = [0.0, -0.0, float("nan"), float("inf"), float("-inf")]
    single = struct.unpack("<f", struct.pack("<f", rnd.uniform(-1e30, 1e30)))[0]
    return float(rnd.choice([*special, single, rnd.randint(-1000, 1000) / 8]))


MAKERS: dict[str, tuple[int, Callable[[random.Random], Any]]] = {
    "string": (10_000, _text),
    "tinyint": (10_000, _integer(8)),
    "smallint": (10_000, _integer(16)),
    "int": (10_000, _integer(32)),
    "bigint": (10_000, _integer(64)),
    "boolean": (10, lambda rnd: rnd.random() < 0.5),
    "float": (1000, _float),
    "double": (1000, _float),
    "date": (1000, lambda rnd: rnd.randint(-719162, 2932896)),
    "timestamp": (1000, lambda rnd: rnd.randint(-(10**15), 10**16)),
    "timestamp_ntz": (1000, lambda rnd: rnd.randint(-(10**15), 10**16)),
    "decimal(9,2)": (1000, _decimal(9)),
    "decimal(18,4)": (1000, _decimal(18)),
    "decimal(38,10)": (1000, _decimal(38)),
    "binary": (2000, lambda rnd: rnd.randbytes(rnd.randint(0, 13))),
}


def _spark_hashes(spark: SparkSession, keys: list[Key], types: tuple[str, ...]) -> list[int]:
    names = [f"c{i}" for i in range(len(types))]
    columns = [arrow_column([key[i] for key in keys], kind) for i, kind in enumerate(types)]
    ddl = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
    frame = spark.createDataFrame(pa.table(columns, names=names), schema=ddl)
    return list(frame.selectExpr(f"hash({', '.join(names)}) AS h").toArrow().column("h").to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("kind", MAKERS)
def test_hash_equals_sparks_for_random_values(spark: SparkSession, kind: str) -> None:
    rnd = random.Random(kind)
    count, make = MAKERS[kind]
    keys: list[Key] = [(None,), *((make(rnd),) for _ in range(count))]
    assert [spark_hash(key, (kind,)) for key in keys] == _spark_hashes(spark, keys, (kind,))


@pytest.mark.spark
def test_hash_equals_sparks_for_composites_with_nulls(spark: SparkSession) -> None:
    rnd = random.Random(1)
    for _ in range(12):
        types = tuple(rnd.choices(list(MAKERS), k=rnd.randint(2, 4)))
        keys: list[Key] = []
        for _ in range(200):
            parts: list[Stored] = [None if rnd.random() < 0.3 else MAKERS[kind][1](rnd) for kind in types]
            keys.append(tuple(parts))
        assert [spark_hash(key, types) for key in keys] == _spark_hashes(spark, keys, types), types
