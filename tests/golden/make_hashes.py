"""`python -m tests.golden.make_hashes` asks Spark for both hashes of some keys, and writes spark_hashes.jsonl."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key
from gnomon.indexer.spark.session import local_session
from tests.btree.files import arrow_column

HASHES = Path(__file__).with_name("spark_hashes.jsonl")
BITS = [("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)]


def hash_keys() -> list[tuple[tuple[str, ...], list[Key]]]:
    """Key types, and keys of them in stored form."""
    rnd = random.Random(42)
    texts: list[Stored] = ["", "a", "ab", "abc", "abcd", "abcde", "é", "日本語", "😀", "a😀", "x" * 1000, None]
    binaries: list[Stored] = [b"", b"\x80", b"\xff\x00", b"\x80\x81\x82", b"\x00\x7f\x80\xff", b"\xff" * 7, None]
    floats: list[Stored] = [0.0, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), None]
    wide = [0, 1, -1, 127, -128, 128, 10**38 - 1, 1 - 10**38, 2**64, None]
    single: list[tuple[str, Sequence[Stored]]] = [
        ("string", texts),
        ("binary", binaries),
        ("boolean", [False, True, None]),
        *((name, [0, -1, -(1 << bits - 1), (1 << bits - 1) - 1, None]) for name, bits in BITS),
        ("float", floats),
        ("double", [*floats, 1e300]),
        ("date", [0, -719162, 20454, None]),
        ("timestamp", [0, -1, 1_767_225_600_000_000, None]),
        ("timestamp_ntz", [0, -1, 1_767_225_600_000_000, None]),
        ("decimal(9,2)", [0, -1, 999999999, None]),
        ("decimal(18,4)", [0, -1, 10**18 - 1, None]),
        ("decimal(38,10)", wide),
    ]
    kinds: list[tuple[tuple[str, ...], list[Key]]] = [((name,), [(v,) for v in values]) for name, values in single]
    pairs: list[Key] = [(rnd.choice(texts), rnd.choice([None, 1, -5])) for _ in range(8)]
    kinds += [(("string", "bigint"), pairs), (("bigint", "string"), [key[::-1] for key in pairs])]
    # The tails of both hashes, and of text beyond ASCII; powers of two and of a byte; days before 1970.
    tails: list[Stored] = ["0123456789abcdefghijklmnopqrstuvwxyz"[:length] for length in range(37)]
    powers = [sign * (2**power + extra) for power in (7, 8, 15, 31, 63) for extra in (-1, 0, 1) for sign in (1, -1)]
    more: list[tuple[str, Sequence[Stored]]] = [
        ("string", [*tails, "é" * 7, "\U0010ffff" * 5, "a\x00b", "\uffff"]),
        ("binary", [bytes(range(128 - length, 128 + length)) for length in range(1, 20)]),
        ("float", [-0.0, 1e-45, -3.4028234663852886e38]),
        ("double", [-0.0, 5e-324, -1.7976931348623157e308]),
        ("date", [-1, -25509, 2932896]),
        ("timestamp", [-(10**15), -62135596800000000, 253402300799999999]),
        ("timestamp_ntz", [-(10**15), -62135596800000000, 253402300799999999]),
        ("decimal(18,4)", [n for n in powers if abs(n) < 10**18]),
        ("decimal(19,0)", powers),
        ("decimal(38,10)", powers),
    ]
    kinds += [((name,), [(value,) for value in values]) for name, values in more]
    mixed: tuple[str, ...] = ("date", "decimal(38,10)", "boolean", "double", "binary")
    choices = ([-1, 20454], [-128, 10**30], [True, False], [0.0, 2.5], [b"", b"\xff" * 9])
    keys: list[Key] = [tuple(rnd.choice([None, *column]) for column in choices) for _ in range(12)]
    return [*kinds, (mixed, [*keys, (None,) * 5])]


def make() -> None:
    spark = local_session("local[1]", {})
    lines = []
    for types, keys in hash_keys():
        names = [f"c{i}" for i in range(len(types))]
        columns = [arrow_column([key[i] for key in keys], name) for i, name in enumerate(types)]
        ddl = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
        frame = spark.createDataFrame(pa.table(columns, names=names), schema=ddl)
        hashes = frame.selectExpr(*[f"{name}({', '.join(names)})" for name in ("hash", "xxhash64")]).collect()
        for key, (murmur, xxh) in zip(keys, hashes, strict=True):
            shown = [key_type(kind).to_json(part) for part, kind in zip(key, types, strict=True)]
            line = {"types": types, "key": shown, "hash": murmur, "xxhash64": xxh}
            lines.append(json.dumps(line, ensure_ascii=False))
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    make()
