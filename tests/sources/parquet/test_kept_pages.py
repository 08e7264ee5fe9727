"""Pages cached between fetches: the same rows, no second read, and no hidden damage."""

import io
from collections.abc import Hashable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.base import kernel
from gnomon.sources import DamagedSource, open_mapped
from gnomon.sources.contract import Sized
from gnomon.sources.parquet.page_values import RUNS, DictionaryIndices
from gnomon.sources.parquet.thrift import ThriftError
from tests.profiles import examples
from tests.sources.parquet.test_select import CODECS, ROWS, random_options, random_table
from tests.sources.parquet_files import flat_table, nested_table, written
from tests.sources.readers import BytesReader


class Pages(dict[Hashable, Sized]):
    """A cache that keeps all pages."""

    def put(self, key: Hashable, page: Sized) -> None:
        self[key] = page


def opened(reader: BytesReader, pages: Pages) -> Any:
    source = open_mapped(reader, "parquet")
    source.keep_in(pages)
    return source


@pytest.mark.parametrize("deep", [False, True], ids=["flat", "nested"])
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 32))
def test_rows_of_kept_pages_are_what_pyarrow_reads(deep: bool, seed: int) -> None:
    dice = Random(seed)
    table, options = random_table(dice, deep), random_options(dice)
    data = written(table, **options)
    whole = pq.read_table(io.BytesIO(data), coerce_int96_timestamp_unit="us")
    reader = BytesReader(data)
    source = opened(reader, Pages())
    for _ in range(6):
        rows = sorted(dice.sample(range(ROWS), dice.choice((1, 1, 5))))
        found = source.fetch(reader, [(row, 0) for row in rows], table.column_names)
        assert repr(found.to_pylist()) == repr(whole.take(rows).to_pylist()), (options, rows)  # repr: NaN, -0.0


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_page_is_read_once(codec: str, version: str) -> None:
    table = flat_table()
    reader = BytesReader(written(table, compression=codec, data_page_version=version))
    source = opened(reader, Pages())
    rows = range(0, 300, 7)
    for row in rows:
        source.fetch(reader, [(row, 0)], table.column_names)
    reader.forget()
    for row in rows:
        assert source.fetch(reader, [(row, 0)], table.column_names).to_pylist() == table.slice(row, 1).to_pylist()
    assert reader.reads == []


def test_a_nested_page_is_read_once() -> None:
    table = nested_table().select(["numbers", "map"])
    reader = BytesReader(written(table, data_page_version="2.0"))
    source = opened(reader, Pages())
    source.fetch(reader, [(77, 0)], table.column_names)
    reader.forget()
    assert source.fetch(reader, [(77, 0)], table.column_names).to_pylist() == table.slice(77, 1).to_pylist()
    assert reader.reads == []


def test_what_a_page_takes_in_memory_is_at_least_what_it_unpacks_to() -> None:
    table = pa.table({"text": [f"{i} " * 50 for i in range(2000)], "word": [f"word {i % 50}" for i in range(2000)]})
    reader = BytesReader(written(table, row_group_size=2000, use_dictionary=["word"], data_page_size=1 << 20))
    pages = Pages()
    opened(reader, pages).fetch(reader, [(7, 0)], table.column_names)
    sizes = sorted(page.cache_bytes for page in pages.values())
    assert sizes[0] > 4 * 2000  # indices, decoded
    assert sizes[1] > table["text"].nbytes


class Flaky(BytesReader):
    """A file with one wrong byte in the first read of it."""

    wrong = -1

    def _bytes(self, offset: int, length: int) -> bytes:
        part = super()._bytes(offset, length)
        at = self.wrong - offset
        if 0 <= at < length:
            self.wrong = -1
            return part[:at] + bytes([part[at] ^ 0x7F]) + part[at + 1 :]
        return part


def test_a_kept_page_that_turns_out_damaged_is_read_again() -> None:
    table = pa.table({"text": [f"text {i}" for i in range(300)]})
    data = written(table, compression="none", use_dictionary=False, row_group_size=300, data_page_size=1 << 20)
    reader = Flaky(data)
    source = opened(reader, Pages())
    reader.wrong = data.index(b"text 250") - 2  # of the length before the value
    assert source.fetch(reader, [(3, 0)], ["text"]).to_pylist() == [{"text": "text 3"}]
    assert reader.wrong < 0
    assert source.fetch(reader, [(290, 0)], ["text"]).to_pylist() == [{"text": "text 290"}]


def test_a_damaged_page_is_reported_each_time() -> None:
    table = pa.table({"text": [f"text {i}" for i in range(300)]})
    data = bytearray(
        written(table, compression="none", use_dictionary=False, row_group_size=300, data_page_size=1 << 20)
    )
    data[data.index(b"text 250") - 2] ^= 0x7F
    reader = BytesReader(bytes(data))
    source = opened(reader, Pages())
    for row in (290, 3, 290):
        with pytest.raises(DamagedSource, match="column text: row group 0"):
            source.fetch(reader, [(row, 0)], ["text"])


@pytest.mark.parametrize("compiled", [True, False])
def test_indices_of_many_runs_are_the_same_at_each_use_and_checked_at_each(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more runs than the loop takes, pyarrow decodes the indices once, and they are kept."""
    monkeypatch.setattr(kernel, "COMPILED", compiled and kernel.COMPILED)
    numbers = [run % 13 for run in range(3 * RUNS) for _ in range(8)]
    body = b"\x04" + b"".join(bytes([8 << 1, run % 13]) for run in range(3 * RUNS))
    indices = DictionaryIndices(memoryview(body))
    for positions in ([5], [len(numbers) - 1], [0, 9, 1000], [1200, 1300], [len(numbers) - 9]):
        spans = [(position, position + 1) for position in positions]
        assert indices.indices(spans, 13) == [numbers[position] for position in positions]
    indices = DictionaryIndices(memoryview(body))
    for _ in range(2):
        with pytest.raises((ThriftError, pa.ArrowException, OSError)):
            indices.indices([(0, len(numbers))], 12)
