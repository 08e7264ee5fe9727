"""The second fetch from a page reads a part of it: the same rows, fewer bytes, compiled or in Python."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.sources import DamagedSource, open_mapped, open_source
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
STREAMS: dict[str, dict[str, Any]] = {
    "zstandard": {"compression": "zstd"},
    "zstandard, version 2": {"compression": "zstd", "data_page_version": "2.0"},
    "zstandard, checksums": {"compression": "zstd", "write_page_checksum": True},
    "gzip": {"compression": "gzip"},
    "gzip, version 2": {"compression": "gzip", "data_page_version": "2.0"},
}
ALL = LAYOUTS | STREAMS


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


def coded_table(rows: int, seed: int = 1) -> pa.Table:
    """Values that writers put into large dictionaries."""
    dice = random.Random(seed)
    words = [f"{i:06d}" + dice.choice("abcdef") * dice.randint(10, 80) for i in range(9000)]
    texts = [dice.choice(words) for _ in range(rows)]
    return pa.table(
        {
            "text": texts,
            "sorted": sorted(texts),
            "html": pa.array([None if i // 700 % 3 == 0 else text * 5 for i, text in enumerate(texts)]),
            "number": [dice.randrange(50_000) for _ in range(rows)],
            "digest": pa.array([word.encode()[:16] for word in texts], pa.binary(16)),
            "one": ["same"] * rows,
            "never": pa.array([None] * rows, pa.string()),
        }
    )


def written_coded(table: pa.Table, **options: Any) -> BytesReader:
    """Each chunk has a dictionary page and one page of indices."""
    given = {"dictionary_pagesize_limit": 64 << 20, "data_page_size": 64 << 20, "max_rows_per_page": 1 << 20}
    return BytesReader(written(table, **{**given, "row_group_size": 1 << 20, "write_page_index": True, **options}))


def without_whole_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.dictionary.KEPT_WHOLE", -1)


def raw(table: pa.Table) -> list[list[bytes | None]]:
    """The values of texts, which may not be UTF-8 any more."""
    return [column.cast(pa.binary()).to_pylist() for column in table.columns]


@pytest.mark.parametrize("layout", ALL)
def test_rows_are_the_same_the_second_time_and_cost_fewer_bytes(layout: str, loops: SimpleNamespace) -> None:
    table = wide_table(1500)
    reader = written_wide(table, **ALL[layout])
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
            assert parts < 3 * FRAGMENT < whole + 3 * FRAGMENT or layout in STREAMS


@pytest.mark.parametrize("layout", STREAMS)
def test_a_page_that_is_one_stream_is_read_up_to_the_value(layout: str, loops: SimpleNamespace) -> None:
    table = wide_table(1500).select(["html"])
    reader = written_wide(table, **STREAMS[layout], data_page_size=64 << 20)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(5, 0)], ["html"])
    read = []
    for row in (3, 300, 700, 1499):
        reader.forget()
        assert source.fetch(reader, [(row, 0)], ["html"])["html"][0] == table["html"][row]
        read.append(reader.bytes_read)
    assert read == sorted(read)
    assert 3 * read[0] < read[3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_of_large_dictionaries_are_the_same_the_second_time_and_cost_fewer_bytes(
    layout: str, loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_whole_dictionaries(monkeypatch)
    table = coded_table(60_000)
    reader = written_coded(table, **LAYOUTS[layout])
    source = open_source(reader, "parquet")
    first = source.fetch(reader, [(5, 0)], table.column_names)
    assert first.to_pylist() == table.slice(5, 1).to_pylist()
    dice = random.Random(3)
    tried = [0, 59_999, *dice.sample(range(60_000), examples(60))]
    for row in tried:
        reader.forget()
        near = sorted({row, *dice.sample(range(60_000), dice.choice([0, 0, 4]))})
        found = source.fetch(reader, [(one, 0) for one in near], table.column_names)
        assert found.cast(table.schema).equals(table.take(near))
        if len(near) == 1:
            assert reader.rounds <= 2
            assert reader.bytes_read < 6 * 2 * FRAGMENT
    assert source.cache_bytes < 120_000  # no dictionary of 400 KB is in memory


def test_rows_of_pages_with_few_indices_cost_no_read_of_the_page(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_whole_dictionaries(monkeypatch)
    table = coded_table(2000).select(["text"])
    reader = written_coded(table, row_group_size=2000)
    source = open_source(reader, "parquet")
    source.fetch(reader, [(5, 0)], ["text"])
    for row in range(0, 2000, 99):
        reader.forget()
        assert source.fetch(reader, [(row, 0)], ["text"])["text"][0] == table["text"][row]
        assert (reader.rounds, len(reader.reads)) == (1, 1)


def test_on_a_remote_store_indices_and_dictionary_are_read_in_one_round(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_whole_dictionaries(monkeypatch)
    table = coded_table(60_000).select(["text", "html"])
    reader = written_coded(table)
    monkeypatch.setattr(reader, "is_remote", True)
    source = open_source(reader, "parquet")
    for row in (5, 40_000, 59_999):
        reader.forget()
        assert source.fetch(reader, [(row, 0)], table.column_names).to_pylist() == table.slice(row, 1).to_pylist()
        assert reader.rounds == 1


def test_a_map_counts_as_memory_and_there_is_a_limit(loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.dictionary.MAPS_LIMIT", 10_000)
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


@pytest.mark.parametrize(
    "layout", ["snappy", "uncompressed", "snappy, checksums", "zstandard", "zstandard, checksums", "gzip"]
)
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_a_page_that_changed_under_its_map_gives_an_error_or_what_a_whole_read_gives(
    coded: bool, layout: str, loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage reports a changed file; this is what happens to bits that flip without it."""
    if coded:
        without_whole_dictionaries(monkeypatch)
        table, columns = coded_table(60_000), ["text", "sorted", "html"]
        reader = written_coded(table, **ALL[layout])
        rows = [(row, 0) for row in (3, 29_900, 40_700, 59_999)]
    else:
        table, columns = wide_table(600), ["url", "html", "large"]
        reader = written_wide(table, **ALL[layout])
        rows = [(row, 0) for row in (3, 299, 407, 599)]
    sound = reader.data
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
        if raw(found) != raw(first):
            assert "checksums" not in layout
            assert raw(found) == raw(open_source(reader, "parquet").fetch(reader, rows, columns))
    assert errors > 0 or layout == "uncompressed"


@needs_corpora
@pytest.mark.parametrize("entry", files_of("parquet", "good"))
def test_each_row_of_a_good_file_comes_back_by_the_map_of_its_page(
    entry: dict[str, str], loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages that can have a map get one, however small; also if no indices are kept, after a restart, and by
    recorded maps."""
    without_whole_dictionaries(monkeypatch)
    monkeypatch.setattr("gnomon.sources.parquet.value_map.LEAST_MAPPED", 0)
    monkeypatch.setattr("gnomon.sources.parquet.dictionary.MOST_OF_A_PAGE", 2)
    reader = reader_of(entry)
    sources = [open_mapped(reader, "parquet") for _ in range(2)]
    names = names_of(sources[0])
    tried = 40 if loops.RecordKeys is not None else 10
    rows = random.Random(1).sample(range(sources[0].rows), min(sources[0].rows, examples(tried)))
    wanted = {row: sources[0].fetch(reader, [(row, 0)], names) for row in rows}
    for row, once in wanted.items():
        for source, longest in zip(sources, (4096, 0), strict=True):
            monkeypatch.setattr("gnomon.sources.parquet.page.LONGEST_INDICES", longest)
            for _ in range(2):
                again = source.fetch(reader, [(row, 0)], names)
                assert again.equals(once) or str(again) == str(once)  # NaN is no equal of itself
    laters = [open_mapped(reader, "parquet") for _ in sources]
    for source, later in zip(sources, laters, strict=True):
        later.learn(source.export_learned())
    maps = sources[0].export_maps(reader, deep=True)
    assert sources[1].has_maps(reader, maps)
    for later in (*laters, open_mapped(reader, "parquet", maps=lambda: maps)):
        for row, once in wanted.items():
            again = later.fetch(reader, [(row, 0)], names)
            assert again.equals(once) or str(again) == str(once)
