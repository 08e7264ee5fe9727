"""Both hashes equal Spark's, for one key and for whole columns."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.btree.hashing import (
    bucket_of,
    buckets_of,
    plain_column,
    plain_keys,
    spark_hash,
    spark_hash_columns,
    unscaled_bytes,
    xxhash64,
    xxhash64_columns,
)
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import Key, stored_values
from tests.btree.files import arrow_column

GOLDEN = Path(__file__).parents[1] / "golden" / "spark_hashes.jsonl"
ALPHABET = "abcXYZ019 -_/éßñ日本語🙂😀\u0000\uffff\U0010ffff"


def test_the_golden_hashes_are_ours() -> None:
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        key = tuple(key_type(kind).to_stored(part, "k") for part, kind in zip(row["key"], row["types"], strict=True))
        assert spark_hash(key, row["types"]) == row["hash"], line
        assert xxhash64(key, row["types"]) == row["xxhash64"], line
        columns = plain_keys([key], row["types"])
        assert spark_hash_columns(columns).tolist() == [row["hash"]], line
        assert xxhash64_columns(columns).tolist() == [row["xxhash64"]], line


def test_a_bucket_is_never_negative() -> None:
    assert {bucket_of((n,), ["int"], 7) for n in range(100)} == set(range(7))
    assert bucket_of((1,), ["int"], 8) == spark_hash((1,), ["int"]) % 8


def test_int_and_bigint_hash_differently_but_small_ints_alike() -> None:
    assert spark_hash((5,), ["int"]) != spark_hash((5,), ["bigint"])
    assert spark_hash((5,), ["int"]) == spark_hash((5,), ["tinyint"]) == spark_hash((5,), ["smallint"])


def test_minus_zero_and_every_nan_hash_as_one_value() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    for hash_of in (spark_hash, xxhash64):
        for kind in ("float", "double"):
            assert hash_of((-0.0,), [kind]) == hash_of((0.0,), [kind])
            assert hash_of((other_nan,), [kind]) == hash_of((float("nan"),), [kind])


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


def _float(form: str) -> Callable[[random.Random], float]:
    """Random bits (subnormal numbers, all kinds of NaN), and some plain numbers."""
    special = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -2.0]
    size = struct.calcsize(form)
    return lambda rnd: rnd.choice(special) if rnd.random() < 0.1 else struct.unpack(form, rnd.randbytes(size))[0]


ROWS = 100_000
NULLS = 0.05
MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "string": _text,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "boolean": lambda rnd: rnd.random() < 0.5,
    "float": _float("<f"),
    "double": _float("<d"),
    "date": lambda rnd: rnd.randint(-719162, 2932896),
    "timestamp": lambda rnd: rnd.randint(-(10**15), 10**16),
    "timestamp_ntz": lambda rnd: rnd.randint(-(10**15), 10**16),
    "decimal(9,2)": _decimal(9),
    "decimal(18,4)": _decimal(18),
    "decimal(38,10)": _decimal(38),
    "binary": lambda rnd: rnd.randbytes(rnd.randint(0, 45)),
}


def random_columns(rows: int) -> dict[str, pa.Array]:
    """Random values of each type, some of them null."""
    columns = {}
    for kind, make in MAKERS.items():
        rnd = random.Random(kind)
        columns[kind] = arrow_column([None if rnd.random() < NULLS else make(rnd) for _ in range(rows)], kind)
    return columns


# -- whole columns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("rows", [0, 1, 2000])
def test_columns_hash_as_keys_one_by_one(kind: str, rows: int) -> None:
    rnd = random.Random(rows)
    array = arrow_column([None if rnd.random() < NULLS else MAKERS[kind](rnd) for _ in range(rows + 3)], kind)[3:]
    keys: list[Key] = [(value,) for value in stored_values(array, kind)]
    for columns in ([plain_column(array, kind)], plain_keys(keys, [kind])):
        assert spark_hash_columns(columns).tolist() == [spark_hash(key, [kind]) for key in keys]
        assert xxhash64_columns(columns).tolist() == [xxhash64(key, [kind]) for key in keys]
        assert buckets_of(columns, 7).tolist() == [bucket_of(key, [kind], 7) for key in keys]


def test_columns_come_as_scans_bring_them() -> None:
    texts = ["a", None, "日本", "a"]
    expected = xxhash64_columns(plain_keys([(text,) for text in texts], ["string"])).tolist()
    for array in (
        pa.array(texts).dictionary_encode(),
        pa.array(texts, pa.large_string()),
        pa.chunked_array([["a", None], ["日本", "a"]]),
        pa.DictionaryArray.from_arrays([0, 1, 2, 0], ["a", None, "日本"]),
    ):
        assert xxhash64_columns([plain_column(array, "string")]).tolist() == expected
    assert plain_column(pa.array([b"\xff\x00"], pa.binary(2)), "binary").to_pylist() == [b"\xff\x00"]
    assert plain_column(pa.array([True, None]), "boolean").to_pylist() == [1, None]


def test_a_few_very_long_values_are_hashed_beside_many_short_ones() -> None:
    texts = ["x" * 400_000, *(f"https://example.com/{i}" for i in range(2000)), "é" * 100_001]
    columns = plain_keys([(text,) for text in texts], ["string"])
    hashed = spark_hash_columns(columns)
    assert [hashed[0], hashed[7], hashed[-1]] == [spark_hash((texts[i],), ["string"]) for i in (0, 7, -1)]
