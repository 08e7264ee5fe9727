"""A random source in one of five formats, and an oracle of its rows.

The oracle keeps the rows as they were made: files are written by pyarrow, fastavro and the standard library, and what
an index must answer is worked out from these rows alone.
"""

import csv
import datetime as dt
import json
import math
import os
import random
import shutil
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from tests.sources.parquet_files import Layout, repaged

Row = dict[str, Any]
FORMATS = ("parquet", "parquet", "parquet", "avro", "orc", "jsonl", "csv")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "decimal(18,4)": pa.decimal128(18, 4),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<bigint>": pa.list_(pa.int64()),
}
AVRO: dict[str, Any] = {
    "string": "string",
    "bigint": "long",
    "int": "int",
    "double": "double",
    "boolean": "boolean",
    "date": {"type": "int", "logicalType": "date"},
    "decimal(18,4)": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4},
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}
LIST = "array<bigint>"  # of no key, and in Parquet files only
NOT_IN = {"orc": {"timestamp"}, "jsonl": {"binary"}, "csv": {"binary"}}
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "é",
    "日本",
    "a/b",
    "a=b",
    "%41",
    "x y",
    "'",
    '"',
    "null",
    "0",
    "-0",
    "\U0001f600",
    "a" * 300,
]
PLAIN_NAMES = ["id", "Value", "n", "t", "data_size", "key2"]
PARTITION_TEXTS = ["1", "01", "a b", "é", "a=b", "50%", "x,y", None]


@dataclass
class DataFile:
    """The current state of a file: its rows, with the values of its partition columns, and a number that is unique to
    this state. `is_forged`: it was rewritten with its old size and time."""

    rows: list[Row]
    state: int
    texts: dict[str, str | None]
    is_forged: bool = False


@dataclass
class Lake:
    """`files` by path below `root`; `columns` with their types; `keys` are columns, partition columns among them."""

    root: Path
    chance: random.Random
    format: str = field(init=False)
    columns: dict[str, str] = field(init=False)
    partitions: list[str] = field(init=False)
    keys: list[str] = field(init=False)
    files: dict[str, DataFile] = field(default_factory=dict)
    states: int = 0

    def __post_init__(self) -> None:
        chance = self.chance
        self.format = chance.choice(FORMATS)
        kinds = [kind for kind in ARROW if kind not in NOT_IN.get(self.format, set()) and kind != LIST]
        known = PLAIN_NAMES if self.format == "avro" else [*PLAIN_NAMES, "k 2", "ké", "a.b"]
        names = chance.sample(known, chance.randint(2, 5))
        self.columns = {name: chance.choice(kinds) for name in names}
        self.partitions = chance.choice([[], [], ["dt"], ["dt"], ["dt", "hour"]])
        keys = chance.sample(names, chance.randint(1, min(3, len(names))))
        self.keys = keys + (["dt"] if self.partitions and chance.random() < 0.2 else [])
        if self.format == "parquet" and chance.random() < 0.5:
            self.columns["list"] = LIST
        self.root.mkdir(parents=True)

    @property
    def options(self) -> dict[str, str]:
        """How the files are read: text does not tell its columns."""
        if self.format not in ("jsonl", "csv"):
            return {}
        return {"schema": ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())}

    def value(self, kind: str) -> Any:
        """A value of few, so that keys repeat; a null at times."""
        chance = self.chance
        if chance.random() < 0.08:
            return None
        small = chance.randint(-3, 12)
        match kind:
            case "string":
                return chance.choice(TEXTS) + (str(small) if chance.random() < 0.5 else "")
            case "int":
                return chance.choice([small, 2**31 - 1, -(2**31)])
            case "bigint":
                return chance.choice([small, small * 10**15, 2**63 - 1, -(2**63)])
            case "double":
                return chance.choice([float(small), small / 3, 1e300, 0.0])
            case "boolean":
                return chance.random() < 0.5
            case "date":
                # Appends refuse to write older days into ORC files.
                oldest = dt.date(1582, 10, 15) if self.format == "orc" else dt.date(1, 1, 1)
                return chance.choice([dt.date(2026, 1, 1 + small % 28), oldest, dt.date(9999, 12, 31)])
            case "decimal(18,4)":
                return Decimal(small * 12_345).scaleb(-4)
            case "array<bigint>":
                return [chance.choice([None, small, i]) for i in range(chance.choice([0, 1, 2, 40]))]
            case "binary":
                return bytes([small % 256]) * (small % 4)
            case _:
                return dt.datetime(2026, 1, 1 + small % 28, small % 24, 0, 0, small % 7, tzinfo=dt.UTC)

    def rows(self, count: int) -> list[Row]:
        return [{name: self.value(kind) for name, kind in self.columns.items()} for _ in range(count)]

    # -- what others do to the source ----------------------------------------------------------------------------------

    def write(self, path: str | None = None) -> str:
        """Write a new file, or another state of one that is there."""
        chance = self.chance
        if path is not None:
            texts = self.files[path].texts
        else:
            texts = {name: chance.choice(PARTITION_TEXTS) for name in self.partitions}
            folders = [f"{name}={_folder(text)}" for name, text in texts.items()]
            path = "/".join([*folders, f"{chance.choice(['part', 'p 1', 'é', '50%'])}-{self.states}.{self.format}"])
        rows = self.rows(chance.choice([0, 1, 3, 40, 400]))
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = self.root.parent / "staged"
        self._write(staged, rows)
        if target.exists() and chance.random() < 0.4:
            target.write_bytes(staged.read_bytes())  # in place
        else:
            staged.replace(target)
        self.put(path, rows, texts)
        return path

    def put(self, path: str, rows: list[Row], texts: dict[str, str | None]) -> None:
        """Note another state of a file."""
        self.states += 1
        self.files[path] = DataFile([{**row, **texts} for row in rows], self.states, texts)

    def rewrite_with_its_time_put_back(self) -> None:
        """Write other rows into a file, in place, where these take as many bytes; then put its time back."""
        for path, data in self.files.items():
            target = self.root / path
            before = target.stat()
            shuffled = [{name: row[name] for name in self.columns} for row in data.rows]
            self.chance.shuffle(shuffled)
            staged = self.root.parent / "staged"
            self._write(staged, shuffled)
            if len(shuffled) > 1 and staged.stat().st_size == before.st_size:
                target.write_bytes(staged.read_bytes())
                os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
                self.put(path, shuffled, data.texts)
                self.files[path].is_forged = True
                return

    def remove(self) -> None:
        if len(self.files) > 1:
            path = self.chance.choice(sorted(self.files))
            (self.root / path).unlink()
            del self.files[path]

    def touch(self, path: str | None = None) -> None:
        """Give a file another time, and leave its bytes."""
        path = path or self.chance.choice(sorted(self.files))
        os.utime(self.root / path)
        data = self.files[path]
        self.put(path, [{name: row[name] for name in self.columns} for row in data.rows], data.texts)

    def touch_forged(self) -> None:
        """Do what the docs advise when a build does not notice that a file was rewritten."""
        for path in [path for path, data in self.files.items() if data.is_forged]:
            self.touch(path)

    def copy_elsewhere(self) -> Path:
        """The lake under another root, with other times; this one is gone."""
        target = self.root.with_name(f"{self.root.name}-copied")
        shutil.copytree(self.root, target, copy_function=shutil.copy)
        shutil.rmtree(self.root)
        self.root = target
        return target

    def place_empty_file(self) -> None:
        folder = self.root / next(iter(sorted(self.files))).rpartition("/")[0]
        (folder / f"empty-{self.states}.{self.format}").write_bytes(b"")

    def _write(self, path: Path, rows: list[Row]) -> None:
        chance = self.chance
        if self.format == "avro":
            fields = [{"name": name, "type": ["null", AVRO[kind]]} for name, kind in self.columns.items()]
            schema = {"type": "record", "name": "r", "fields": fields}
            with path.open("wb") as out:
                fastavro.writer(out, schema, rows, codec=chance.choice(["null", "deflate"]), sync_interval=500)
            return
        if self.format in ("jsonl", "csv"):
            with path.open("w", encoding="utf-8", newline="") as out:
                self._write_text(out, rows)
            return
        schema = pa.schema([pa.field(name, ARROW[kind]) for name, kind in self.columns.items()])
        table = pa.Table.from_pylist(rows, schema)
        if self.format == "orc":
            pa.orc.write_table(table, path, compression=chance.choice(["zlib", "snappy", "uncompressed"]))
            return
        if rows and "boolean" not in self.columns.values() and chance.random() < 0.4:
            path.write_bytes(repaged(table, self._layout()))
            return
        options: dict[str, Any] = {
            "compression": chance.choice(["snappy", "zstd", "gzip", "none", "lz4"]),
            "row_group_size": chance.choice([3, 50, 10_000]),
            "data_page_size": chance.choice([64, 1000, 1 << 20]),
            "use_dictionary": chance.random() < 0.5,
            "data_page_version": chance.choice(["1.0", "2.0"]),
            "write_page_index": chance.random() < 0.5,
        }
        pq.write_table(table, path, **options)

    def _layout(self) -> Layout:
        """Pages that begin within a row, as some writers make them."""
        chance = self.chance
        entries = [chance.choice([1, 3, 30, 500]) for _ in range(chance.choice([1, 7]))]
        version, index = chance.choice([1, 2]), chance.choice([None, "begun", "touched"])
        return Layout(entries, version, index, chance.choice([0, 1, 2, 6]), chance.random() < 0.5)

    def _write_text(self, out: Any, rows: list[Row]) -> None:
        if self.format == "csv":
            writer = csv.writer(out, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
            writer.writerow(self.columns)
            for row in rows:
                out.write(",".join(_csv_field(value) for value in row.values()) + "\n")
            return
        for row in rows:
            out.write(json.dumps({name: _json_value(value) for name, value in row.items()}, ensure_ascii=False) + "\n")


def _folder(text: str | None) -> str:
    return HIVE_NULL if text is None else quote(text, safe=" ,éabx")


def _csv_field(value: Any) -> str:
    """Quoted wherever it is text; null is an empty field without quotes."""
    if value is None:
        return ""
    text = _text(value)
    return '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return repr(value) if isinstance(value, float) else str(value)


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    return (
        float(value) if isinstance(value, float) else _text(value) if not isinstance(value, Decimal) else float(value)
    )


def read_file(path: Path, format: str) -> list[Row]:
    """The rows of a file that the product wrote, read by others."""
    if format == "avro":
        with path.open("rb") as data:
            return [dict(row) for row in fastavro.reader(data) if isinstance(row, dict)]
    table = pa.orc.read_table(path) if format == "orc" else pq.read_table(path)
    return [dict(row) for row in table.to_pylist()]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same: NaN is NaN, and 0.0 is -0.0."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)
