"""Rows whose places are known come as Python values: the same as by `fetch`, from fewer steps."""

import random
from collections.abc import Hashable, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.shadow.values import of_plain, python_values
from gnomon.sources import MappedFile, SourceFile, open_mapped, open_source
from tests.profiles import examples
from tests.sources.by_ordinal import names_of
from tests.sources.corpora import files_of, needs_corpora, reader_of
from tests.sources.parquet.test_value_maps import ALL, STREAMS, coded_table, wide_table, written_coded, written_wide
from tests.sources.readers import BytesReader

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="value maps need compiled loops")


class Pages(dict[Hashable, Any]):
    """A cache of pages without a limit."""

    def put(self, key: Hashable, page: Any) -> None:
        self[key] = page


Columns = list[list[Any]]


def values(source: SourceFile, reader: BytesReader, rows: Sequence[int], names: Sequence[str]) -> Columns | None:
    found = cast(MappedFile, source).values(reader, rows, names)
    if found is None:
        return None
    return [list(of_plain(kind, column)) for kind, column in zip(found.types, found.columns, strict=True)]


def fetched(source: SourceFile, reader: BytesReader, rows: Sequence[int], names: Sequence[str]) -> Columns:
    table = source.fetch(reader, [(row, 0) for row in rows], names)
    return [python_values(column) for column in table.columns]


@pytest.mark.parametrize("keeps_pages", [True, False], ids=["pages kept", "no pages kept"])
@pytest.mark.parametrize("layout", ALL)
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_values_of_known_rows_are_those_of_a_fetch(coded: bool, layout: str, keeps_pages: bool) -> None:
    table = coded_table(20_000) if coded else wide_table(1500)
    reader = (written_coded if coded else written_wide)(table, **ALL[layout])
    source = open_source(reader, "parquet")
    if keeps_pages:
        cast(MappedFile, source).keep_in(Pages())
    names = [name for name in table.column_names if name != "digest"]  # of a fixed length: Arrow reads it
    dice, known, tries = random.Random(3), 0, examples(60)
    for _ in range(tries):
        rows = dice.choices(range(table.num_rows), k=dice.choice([1, 1, 1, 2, 8]))
        wanted = fetched(source, reader, rows, names)
        reader.forget()
        found = values(source, reader, rows, names)
        assert found is None or found == wanted
        known += found is not None
        if keeps_pages and found is not None:
            assert reader.bytes_read == 0
    if keeps_pages:
        assert known == tries
    elif coded and layout not in STREAMS:  # dictionaries are kept, or have a map
        assert known


def test_nulls_numbers_moments_booleans_and_texts_that_are_not_utf8_are_right() -> None:
    table = pa.table(
        {
            "flag": pa.array([True, None, False] * 100),
            "small": pa.array([1, None, -(1 << 31)] * 100, pa.int32()),
            "day": pa.array([0, None, -800_000] * 100, pa.int32()).cast(pa.date32()),
            "at": pa.array([1, None, -1] * 100, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "ms": pa.array([1, None, -1] * 100, pa.int64()).cast(pa.timestamp("ms")),
            "single": pa.array([0.1, None, -0.0] * 100, pa.float32()),
            "double": pa.array([0.1, None, float("inf")] * 100),
            "raw": pa.array([b"\xff\0", None, b""] * 100, pa.binary()),
            "text": pa.Array.from_buffers(*_texts([b"\xff", None, "é".encode()] * 100)),
        }
    )
    for use_dictionary in (True, False):
        reader = written_wide(table, use_dictionary=use_dictionary)
        source = open_source(reader, "parquet")
        cast(MappedFile, source).keep_in(Pages())
        for name in table.column_names:
            for row in range(6):
                wanted = fetched(source, reader, [row], [name])
                assert values(source, reader, [row], [name]) == wanted
                assert [type(value) for [value] in wanted] == [type(value) for value in wanted[0]]


def _texts(values: Sequence[bytes | None]) -> tuple[pa.DataType, int, list[pa.Buffer]]:
    array = pa.array(values, pa.binary())
    return pa.string(), len(array), array.buffers()


def test_rows_beyond_the_file_and_unknown_pages_are_left_to_fetch() -> None:
    table = wide_table(300)
    reader = written_wide(table)
    source = cast(MappedFile, open_source(reader, "parquet"))
    reader.forget()
    assert source.values(reader, [7], ["url"]) is None
    assert not reader.reads
    source.keep_in(Pages())
    source.fetch(reader, [(7, 0)], ["url"])
    assert source.values(reader, [7], ["url"]) is not None
    assert source.values(reader, [300], ["url"]) is None
    assert source.values(reader, [-1], ["url"]) is None
    assert source.values(reader, [7], []) is None


@pytest.mark.parametrize("layout", ["snappy", "uncompressed", "zstandard", "gzip", "snappy, checksums"])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_a_part_that_changed_gives_no_value_but_those_of_a_whole_read(
    coded: bool, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.dictionary.KEPT_WHOLE", -1)
    table = coded_table(60_000) if coded else wide_table(600)
    columns = ["text", "sorted", "html"] if coded else ["url", "html", "large"]
    reader = (written_coded if coded else written_wide)(table, **ALL[layout])
    sound, source = reader.data, open_source(reader, "parquet")
    rows = [3, table.num_rows // 2, table.num_rows - 1]
    wanted = fetched(source, reader, rows, columns)
    reader.forget()
    found = values(source, reader, rows, columns)
    assert found is None or found == wanted
    spans, dice, doubts = list(reader.reads), random.Random(5), 0
    for _ in range(examples(300) if spans else 0):
        offset, length = dice.choice(spans)
        at = offset + dice.randrange(length)
        reader.data = sound[:at] + bytes([sound[at] ^ 1 << dice.randrange(8)]) + sound[at + 1 :]
        found = values(source, reader, rows, columns)
        doubts += found is None
        if found is not None and found != wanted:
            assert layout == "uncompressed"  # without a checksum
            assert found == fetched(open_source(reader, "parquet"), reader, rows, columns)
    assert doubts > 0 or not spans or layout == "uncompressed"


@needs_corpora
@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_each_row_of_a_good_file_has_the_values_of_a_fetch(
    entry: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.value_map.LEAST_MAPPED", 0)
    monkeypatch.setattr("gnomon.sources.parquet.known_rows.MOST_OF_A_PAGE", 2)
    reader = reader_of(entry)
    sources = [open_mapped(reader, "parquet") for _ in range(2)]
    sources[0].keep_in(Pages())
    names = names_of(sources[0])
    rows = random.Random(1).sample(range(sources[0].rows or 0), min(sources[0].rows or 0, examples(20)))
    for source in sources:
        for row in rows:
            for name, column in zip(names, fetched(source, reader, [row], names), strict=True):
                for _ in range(2):
                    found = values(source, reader, [row], [name])
                    assert found is None or str(found) == str([column])  # NaN is no equal of itself
