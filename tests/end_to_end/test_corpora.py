"""Real files of many writers through `gnomon build` and `fetch`: rows by key, compared with rows of other readers."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gnomon.indexer import build
from gnomon.shadow import ShadowError, SourceError, UsageError
from gnomon.sources import open_source
from tests.opened import open_index
from tests.sources.corpora import ROOT, expected_of, files_of, load_canon, needs_corpora, without_classes
from tests.sources.readers import BytesReader
from tests.sources.text_corpora import options_of, row_agrees

pytestmark = needs_corpora

MOST_BYTES, MOST_ROWS = 3_000_000, 1_000  # of a file in every run
FEW_KEYS = 50  # of a file without a list of all rows
FEW = 6  # files per format, of different writers and codecs, in every run; the nightly run tries all
UNREADABLE = ("bad", "bad-partial", "unreadable", "encrypted", "wrong-format", "not-line-delimited")
FORMATS = {"parquet": "parquet", "avro": "avro", "orc": "orc", "seq": "sequence", "csv": "csv", "json": "jsonl"}
Entry = dict[str, str]


@pytest.fixture(scope="module")
def canon() -> ModuleType:
    return load_canon()


def keyed_files(listed_as: str, few: int | None) -> list[Entry]:
    """Sound files that have a key column. With `few`, one for each (writer, codec, nesting), or the first ones for
    JSON."""
    chosen: dict[tuple[str, ...], Entry] = {}
    for param in files_of(listed_as, "good"):
        entry: Entry = param.values[0]
        if is_keyed(entry, few is not None) and has_columns(listed_as, entry):
            kind: tuple[str, ...] = (entry["file"],)
            if few and listed_as != "json":
                writer = entry["created_by"].split(" (")[0][:24]
                kind = (writer, entry["compression"], entry["page_version"], entry["nested"])
            chosen.setdefault(kind, entry)
            if len(chosen) == few:
                break
    return list(chosen.values())


def is_keyed(entry: Entry, be_quick: bool) -> bool:
    """Whether a file has a key column and a supported encoding, and is short enough for a quick run."""
    is_small = not be_quick or (int(entry["size"]) < MOST_BYTES and int(entry["rows_read"]) <= MOST_ROWS)
    has_key = bool(entry["expected_file"] and (entry["key_unique"] or entry["key_nonunique"]))
    return is_small and has_key and not (entry["format"] == "csv" and "latin-1" in entry["note"])


def has_columns(listed_as: str, entry: Entry) -> bool:
    """Whether all rows are records. Other rows have one column, which is not listed as a key."""
    return listed_as != "json" or all(isinstance(one.row, dict) for one in expected_of(entry))


def key_column(entry: Entry) -> str:
    """The first key column of an entry."""
    column = (entry["key_unique"] or entry["key_nonunique"]).split(";")[0]
    return column.split("(")[0].rpartition(":")[0] if column.startswith("#") else column.split(":")[0]


def rows_and_key(listed_as: str, entry: Entry) -> tuple[list[Any], str, Callable[[Any], Any]]:
    """The rows, the key column's name in answers, and a function for the key of a row."""
    rows = [one.row for one in expected_of(entry) if one.row != []]
    name = key_column(entry)
    if listed_as == "csv":
        place = int(name[1:]) if name.startswith("#") else rows[0].index(name)
        return rows, f"_c{place}", lambda row: (row[place] or None) if place < len(row) else None
    rows = [dict(reversed(row.get("$pairs", [*row.items()]))) for row in rows]
    return rows, name, lambda row: as_key(row.get(name))


def check(spark: SparkSession | None, listed_as: str, entry: Entry, place: str, canon: ModuleType) -> int:
    """Index a file, and fetch each listed row by its key. Returns the number of equal rows. UsageError for a key of an
    unsupported type."""
    rows, name, key_of = rows_and_key(listed_as, entry)
    options = options_of(entry) if listed_as in ("csv", "json") else {}
    build(spark, str(ROOT / entry["file"]), place, [name], format=FORMATS[listed_as], buckets=3, options=options)
    index = open_index(place)
    distinct = {repr(key_of(row)): key_of(row) for row in rows}
    if len(rows) < index.view.snapshot.rows:  # repeated keys may have more rows than the list
        distinct = dict(itertools.islice(distinct.items(), FEW_KEYS))
    found = dict(zip(distinct, index.fetch_many([{name: key} for key in distinct.values()]), strict=True))
    (_, schema), *_ = index.schemas(index.view.columns)
    alike, is_whole = Counter(repr(key_of(row)) for row in rows), len(rows) == index.view.snapshot.rows
    compared = 0
    for row in rows:
        answers = found.get(repr(key_of(row)))
        # the list has a quoted empty text like an empty field, which is null
        if answers is None or (listed_as == "csv" and key_of(row) is None):
            continue
        assert len(answers) == alike[repr(key_of(row))] or not is_whole, (entry["file"], name, key_of(row))
        assert any(same(canon, row, one, schema, bool(options)) for one in answers), (entry["file"], row, answers[:3])
        compared += 1
    return compared


def same(canon: ModuleType, expected: Any, found: dict[str, Any], schema: pa.Schema, is_text: bool) -> bool:
    """Whether the answer is the row. For unknown classes the bytes are compared."""
    if is_text:
        return row_agrees(expected, found, schema, canon)
    return bool(canon.same(without_classes(expected), canon.canon(found)))


def as_key(value: Any) -> Any:
    """A key in the form of the expected rows: bytes as base64, NaN and infinities as text."""
    if isinstance(value, dict):
        return value.get("$b", value.get("$f", value))
    return value


@pytest.mark.parametrize("listed_as", FORMATS)
def test_rows_of_real_files_come_back_by_their_keys(tmp_path: Path, canon: ModuleType, listed_as: str) -> None:
    files = keyed_files(listed_as, FEW)
    rows = sum(check(None, listed_as, entry, str(tmp_path / str(i)), canon) for i, entry in enumerate(files))
    assert len(files) >= 3
    assert rows >= len(files)


@pytest.mark.nightly
@pytest.mark.parametrize("listed_as", FORMATS)
def test_files_that_no_reader_can_read_are_refused_by_name(spark: SparkSession, tmp_path: Path, listed_as: str) -> None:
    tried, read, wrong = 0, [], []
    for param in files_of(listed_as, *UNREADABLE):
        entry, tried = param.values[0], tried + 1
        place = str(ROOT / entry["file"])
        key = first_column(place, FORMATS[listed_as])
        try:
            rows = build(spark, place, str(tmp_path / str(tried)), [key], format=FORMATS[listed_as]).rows
            read.append(f"{entry['file']}: {rows} rows by {key}")
        except ShadowError as error:
            wrong += [f"{entry['file']}: {error}"] * (place not in str(error) and not isinstance(error, UsageError))
        except SourceError as error:
            wrong += [f"{entry['file']}: {error}"] * (error.path != place)
    print(f"\n{listed_as}: {tried} files, {len(read)} read, {len(wrong)} wrong")
    print("\n".join([*read, *wrong]))
    assert not wrong


def first_column(place: str, format_name: str) -> str:
    """The first column that can be a key, by the file's schema."""
    try:
        with open(place, "rb") as file:
            schema = open_source(BytesReader(file.read(), place), format_name).schema
    except SourceError:
        return "none"
    flat = [field.name for field in schema if not pa.types.is_nested(field.type) and not pa.types.is_null(field.type)]
    return next(iter(flat), "none")


@pytest.mark.nightly
@pytest.mark.parametrize("listed_as", FORMATS)
def test_rows_of_all_real_files_come_back_by_their_keys(
    spark: SparkSession, tmp_path: Path, canon: ModuleType, listed_as: str
) -> None:
    tried, rows, refused, wrong, begin = 0, 0, [], [], time.monotonic()
    for entry in keyed_files(listed_as, None):
        tried += 1
        try:
            rows += check(spark, listed_as, entry, str(tmp_path / str(tried)), canon)
        except UsageError as error:
            refused.append(f"{entry['file']}: {error}")
        except Exception as error:  # noqa: BLE001  the test reports all errors together
            wrong.append(f"{entry['file']}: {type(error).__name__}: {error}"[:400])
    seconds = (time.monotonic() - begin) / max(tried, 1)
    print(f"\n{listed_as}: {tried} files, {rows} rows equal, {len(refused)} refused, {len(wrong)} wrong")
    print(f"{seconds:.2f} s each")
    print("\n".join([*refused, *wrong]))
    assert not wrong
