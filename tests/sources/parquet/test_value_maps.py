"""The second fetch from a page reads a part of it: the same rows, fewer bytes, compiled or in Python."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.sources import DamagedSource, open_source
from tests.loops import use
from tests.profiles import examples
from tests.sources.by_ordinal import names_of
from tests.sources.corpora import files_of, needs_corpora, reader_of
from tests.sources.parquet_files import written
from tests.sources.readers import BytesReader

LAYOUTS: dict[str, dict[str, Any]] = {
    "snappy": {"compression": "snappy"},
    "snappy, version 2": {"compression": "snappy", "data_page_version": "2.0"},
    "uncompressed": {"compression": "none"},
    "uncompressed, version 2": {"compression": "none", "data_page_version": "2.0"},
    "snappy, no page index": {"compression": "snappy", "write_page_index": False},
    "snappy, checksums": {"compression": "snappy", "write_page_checksum": True},
}


@pytest.fixture(params=[pytest.param("python", marks=pytest.mark.slow), "compiled"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Each test runs with the loops in Python and compiled."""
    chosen = use(request.param, monkeypatch)
    monkeypatch.setattr(kernel, "COMPILED", True)
    return chosen


def wide_table(rows: int, seed: int = 1) -> pa.Table:
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    words = [bytes(dice.choices(b"abcdefghijklmnop", k=dice.randint(2, 9))).decode() for _ in range(500)]
    longer = [" ".join(dice.choices(words, k=dice.randint(20, 300))) for _ in range(rows)]
    return pa.table(
        {
            "id": numbers.integers(0, 1 << 60, rows),
            "url": [f"https://site{i % 97}.example/{i}" for i in range(rows)],
            "html": pa.array([None if dice.random() < 0.1 else text for text in longer]),
            "share": pa.array([None if dice.random() < 0.5 else dice.random() for _ in range(rows)]),
            "digest": pa.array([dice.randbytes(20) for _ in range(rows)], pa.binary(20)),
            "never": pa.array([None] * rows, pa.string()),
            "large": pa.array([("z" * dice.randint(0, 200_000) if i % 400 == 7 else "") for i in range(rows)]),
        }
    )


def written_wide(table: pa.Table, **options: Any) -> BytesReader:
    given = {"use_dictionary": False, "write_page_index": True, "write_batch_size": 64, "row_group_size": 3000}
    return BytesReader(written(table, **{**given, "data_page_size": 1 << 19, **options}))


def raw(table: pa.Table) -> list[list[bytes | None]]:
    """The values of texts, which may not be UTF-8 any more."""
    return [column.cast(pa.binary()).to_pylist() for column in table.columns]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_the_same_the_second_time_and_cost_fewer_bytes(layout: str, loops: SimpleNamespace) -> None:
    table = wide_table(1500)
    reader = written_wide(table, **LAYOUTS[layout])
    source = open_source(reader, "parquet")
    dice = random.Random(3)
    for row in dice.sample(range(table.num_rows), examples(40)):
        around = range(max(row - 30, 0), min(row + 30, table.num_rows))
        near = sorted({row, *dice.sample(around, dice.choice([0, 0, 4]))})
        pointers = [(one, 0) for one in near]
        wanted = table.take(near)
        assert source.fetch(reader, pointers, table.column_names).cast(wanted.schema).equals(wanted)
        reader.forget()
        assert source.fetch(reader, pointers, table.column_names).cast(wanted.schema).equals(wanted)
        if len(near) == 1:
            whole, parts = reader.bytes_read, 0
            reader.forget()
            for name in ("id", "html"):
                source.fetch(reader, pointers, [name])
                parts += reader.bytes_read
                reader.forget()
            assert parts < 3 * FRAGMENT < whole + 3 * FRAGMENT


def test_a_map_counts_as_memory_and_there_is_a_limit(loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.page_decode.value_maps.LIMIT", 10_000)
    table = wide_table(1500)
    reader = written_wide(table, data_page_size=1 << 17)
    source = open_source(reader, "parquet")
    before = source.cache_bytes
    for row in range(0, 1500, 40):
        source.fetch(reader, [(row, 0)], ["html"])
    assert 5_000 < source.cache_bytes - before < 20_000


def test_pages_whose_fragments_need_each_other_are_read_whole(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "unpack_snappy", lambda *given: (loops.unpack_snappy(*given)[0], None))
    table = wide_table(2000)
    reader = written_wide(table)
    source = open_source(reader, "parquet")
    for _ in range(2):
        reader.forget()
        assert source.fetch(reader, [(700, 0)], ["html"])["html"][0] == table["html"][700]
        assert reader.bytes_read > 100_000


def test_a_page_that_changed_under_its_map_gives_an_error_or_what_a_whole_read_gives(loops: SimpleNamespace) -> None:
    """The storage reports a changed file; this is what happens to bits that flip without it."""
    table = wide_table(600)
    reader = written_wide(table)
    sound = reader.data
    columns = ["url", "html", "large"]
    rows = [(row, 0) for row in (3, 299, 407, 599)]
    source = open_source(reader, "parquet")
    first = source.fetch(reader, rows, columns)
    assert first.to_pylist() == table.select(columns).take([row for row, _ in rows]).to_pylist()
    dice, errors = random.Random(5), 0
    reader.forget()
    source.fetch(reader, rows, columns)
    spans = list(reader.reads)
    for _ in range(examples(300)):
        offset, length = dice.choice(spans)
        at = offset + dice.randrange(length)
        reader.data = sound[:at] + bytes([sound[at] ^ 1 << dice.randrange(8)]) + sound[at + 1 :]
        try:
            found = source.fetch(reader, rows, columns)
        except DamagedSource:
            errors += 1
            continue
        if raw(found) != raw(first):  # in a page without a checksum
            assert raw(found) == raw(open_source(reader, "parquet").fetch(reader, rows, columns))
    assert errors > 0


@needs_corpora
@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_each_row_of_a_good_file_comes_back_by_the_map_of_its_page(
    entry: dict[str, str], loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages that can have a map get one, however small they are."""
    monkeypatch.setattr("gnomon.sources.parquet.page_decode.value_map.LEAST_MAPPED", 0)
    monkeypatch.setattr("gnomon.sources.parquet.page_decode.select.MOST_OF_A_PAGE", 2)
    reader = reader_of(entry)
    source = open_source(reader, "parquet")
    names = names_of(source)
    tried = 10 if loops.RecordKeys is None else 40
    rows = random.Random(1).sample(range(source.rows), min(source.rows, examples(tried)))
    for row in rows:
        once = source.fetch(reader, [(row, 0)], names)
        again = source.fetch(reader, [(row, 0)], names)
        assert again.equals(once) or str(again) == str(once)  # NaN is no equal of itself
