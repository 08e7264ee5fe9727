"""`python -m tests.golden.make_hashes` asks Spark for the hash of some keys, and writes spark_hashes.jsonl."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from btree.display import to_json
from btree.keys import Key, Stored
from indexer.session import local_session
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
    return [*kinds, (("string", "bigint"), pairs), (("bigint", "string"), [key[::-1] for key in pairs])]


def make() -> None:
    spark = local_session("local[1]", {})
    lines = []
    for types, keys in hash_keys():
        names = [f"c{i}" for i in range(len(types))]
        columns = [arrow_column([key[i] for key in keys], name) for i, name in enumerate(types)]
        ddl = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
        frame = spark.createDataFrame(pa.table(columns, names=names), schema=ddl)
        hashes = [row[0] for row in frame.selectExpr(f"hash({', '.join(names)})").collect()]
        for key, number in zip(keys, hashes, strict=True):
            shown = [to_json(part, kind) for part, kind in zip(key, types, strict=True)]
            lines.append(json.dumps({"types": types, "key": shown, "hash": number}, ensure_ascii=False))
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    make()
