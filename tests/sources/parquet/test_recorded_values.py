"""Value maps that are recorded with the page maps: the first fetch from a page reads parts of it, and damaged ones are
refused."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from gnomon.base import kernel
from gnomon.base.kernel import FRAGMENT
from gnomon.sources import DamagedMaps, DamagedSource, check_maps, maps_have_values, open_mapped, open_source
from gnomon.sources.contract import MappedFile
from gnomon.sources.parquet import map_codec, read_plan
from tests.profiles import examples, positions
from tests.sources.parquet.test_kept_pages import Pages
from tests.sources.parquet.test_value_maps import (
    LAYOUTS,
    coded_table,
    loops,
    raw,
    wide_table,
    without_whole_dictionaries,
    written_coded,
    written_wide,
)
from tests.sources.parquet_files import nested_table, written
from tests.sources.readers import BytesReader

__all__ = ["loops"]
needs_loops = pytest.mark.skipif(not kernel.COMPILED, reason="value maps need compiled loops")


def recorded(reader: BytesReader) -> bytes:
    return open_mapped(reader, "parquet").export_maps(reader, deep=True)


def opened(reader: BytesReader, maps: bytes) -> MappedFile:
    """The file as a new process opens it; the reader has no reads yet."""
    source = open_mapped(reader, "parquet", maps=lambda: maps)
    reader.forget()
    return source


def tried(rows: int) -> Iterator[list[int]]:
    """Rows for one fetch: one, or some."""
    dice = random.Random(3)
    for row in [0, rows - 1, *dice.sample(range(rows), examples(40))]:
        yield sorted({row, *dice.sample(range(rows), dice.choice([0, 0, 4]))})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_fetch_from_a_page_gives_the_same_rows_and_reads_parts(layout: str, loops: SimpleNamespace) -> None:
    table = wide_table(1500)
    reader = written_wide(table, **LAYOUTS[layout])
    maps = recorded(reader)
    for rows in tried(1500):
        source = opened(reader, maps)
        found = source.fetch(reader, [(row, 0) for row in rows], table.column_names)
        assert found.cast(table.schema).equals(table.take(rows))
        if len(rows) == 1:
            assert reader.rounds == 1
            for name in ("id", "html"):
                reader.forget()
                opened(reader, maps).fetch(reader, [(rows[0], 0)], [name])
                assert reader.bytes_read < 2 * FRAGMENT


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_fetch_of_entries_of_a_dictionary_reads_parts_of_it(
    layout: str, loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_whole_dictionaries(monkeypatch)
    table = coded_table(60_000)
    reader = written_coded(table, **LAYOUTS[layout])
    maps = recorded(reader)
    for rows in tried(60_000):
        source = opened(reader, maps)
        found = source.fetch(reader, [(row, 0) for row in rows], table.column_names)
        assert found.cast(table.schema).equals(table.take(rows))
        if len(rows) == 1:
            assert reader.rounds <= 2
            assert reader.bytes_read < 6 * 2 * FRAGMENT


@needs_loops
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_a_part_in_memory_serves_all_values_of_its_fragments(
    coded: bool, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also values behind the one for which it was read."""
    without_whole_dictionaries(monkeypatch)
    numbers, rows = range(30_000), list(range(0, 30_000, 200 if coded else 500))
    wide = {"id": numbers, "digest": pa.array([b"%020d" % i for i in numbers], pa.binary(20))}
    table = coded_table(30_000) if coded else pa.table(wide | {"text": [f"text {i}" for i in numbers]})
    written_so = {"row_group_size": 30_000, "data_page_size": 1 << 20, **LAYOUTS[layout]}
    reader = (written_coded if coded else written_wide)(table, **written_so)
    source, places = opened(reader, recorded(reader)), []
    source.keep_in(Pages())
    for row in [*rows, *random.Random(1).sample(numbers, 30)]:
        found = source.fetch(reader, [(row, 0)], table.column_names)
        assert found.cast(table.schema).equals(table.slice(row, 1))
        places.append(len(set(reader.reads)))
    assert len(reader.reads) == places[-1]  # no part was read twice
    assert all(length < 3 * FRAGMENT for _, length in reader.reads)


@pytest.mark.parametrize("options", [{"compression": "lz4"}, {"compression": "brotli", "data_page_version": "2.0"}])
def test_of_other_codecs_only_the_indices_of_small_pages_are_recorded(
    options: dict[str, Any], loops: SimpleNamespace
) -> None:
    table = coded_table(2000)
    reader = written_coded(table, **options)
    maps = recorded(reader)
    for row in range(0, 2000, 99):
        source = opened(reader, maps)
        assert source.fetch(reader, [(row, 0)], ["text"])["text"][0] == table["text"][row]
        assert len(reader.reads) == 1  # the dictionary
    plain = written_wide(wide_table(300), **options)
    assert len(recorded(plain)) < len(open_mapped(plain, "parquet").export_maps(plain)) + 60


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"compression": "gzip", "data_page_version": "2.0"}])
def test_the_first_fetch_from_a_page_that_is_one_stream_reads_up_to_the_value(
    options: dict[str, Any], loops: SimpleNamespace
) -> None:
    table = wide_table(1500).select(["html"])
    reader = written_wide(table, **options, data_page_size=64 << 20)
    maps = recorded(reader)
    for row in (3, 300, 1499):
        reader.forget()
        source = opened(reader, maps)
        assert source.fetch(reader, [(row, 0)], ["html"])["html"][0] == table["html"][row]
        assert (sum(length for _, length in reader.reads) < len(reader.data) / 2) == (row < 1000)


def test_maps_of_a_stream_are_alike_whatever_its_decoder_reads_ahead(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = written_wide(wide_table(1500).select(["html"]), compression="zstd")
    maps = recorded(reader)
    monkeypatch.setattr("gnomon.base.compression.STEP", 1 << 20)
    assert recorded(reader) != maps
    assert open_mapped(reader, "parquet").has_maps(reader, maps)


def test_nested_columns_have_none_and_are_read_as_ever(loops: SimpleNamespace) -> None:
    reader = BytesReader(written(nested_table(), data_page_version="2.0"))
    source = opened(reader, recorded(reader))
    before = open_source(reader, "parquet")
    for row in range(0, source.rows or 0, 7):
        names = source.schema.names
        assert source.fetch(reader, [(row, 0)], names).equals(before.fetch(reader, [(row, 0)], names))


def test_without_compiled_loops_the_places_of_pages_are_recorded_and_value_maps_ignored(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide_table(600)
    reader = written_wide(table)
    maps = recorded(reader)
    monkeypatch.setattr(kernel, "COMPILED", False)
    assert recorded(reader) == open_mapped(reader, "parquet").export_maps(reader)
    assert (maps_have_values("parquet", maps), maps_have_values("parquet", recorded(reader))) == (True, False)
    source = opened(reader, maps)
    assert source.fetch(reader, [(300, 0)], table.column_names).cast(table.schema).equals(table.slice(300, 1))
    assert source.has_maps(reader, maps)


def test_there_is_a_bound_of_what_is_recorded_and_the_other_pages_are_read_whole(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide_table(1500)
    reader = written_wide(table, data_page_size=1 << 17)
    whole = recorded(reader)
    monkeypatch.setattr(read_plan, "RECORDED_VALUES", 1000)
    some = recorded(reader)
    bare = open_mapped(reader, "parquet").export_maps(reader)
    assert len(bare) < len(some) < len(whole)
    for row in (3, 700, 1499):
        source = opened(reader, some)
        assert source.fetch(reader, [(row, 0)], table.column_names).cast(table.schema).equals(table.slice(row, 1))
    assert opened(reader, some).has_maps(reader, some)


def test_maps_beyond_the_limit_of_memory_are_used_and_not_kept(
    loops: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.sources.parquet.dictionary.MAPS_LIMIT", 3000)
    table = wide_table(1500)
    reader = written_wide(table, data_page_size=1 << 17)
    source = opened(reader, recorded(reader))
    before = source.cache_bytes
    for row in range(0, 1500, 40):
        reader.forget()
        assert source.fetch(reader, [(row, 0)], ["html"])["html"][0] == table["html"][row]
        assert reader.bytes_read < 2 * FRAGMENT
    assert source.cache_bytes - before < 10_000


def test_recorded_value_maps_count_as_memory_and_take_few_bytes_a_page(loops: SimpleNamespace) -> None:
    table = wide_table(8000)
    reader = written_wide(table, data_page_size=1 << 20, row_group_size=8000)
    maps = recorded(reader)
    bare = open_mapped(reader, "parquet").export_maps(reader)
    pages = len(map_codec.decode_maps(maps, open_mapped(reader, "parquet").digest)[1] or ())
    assert pages > 8
    assert 50 < (len(maps) - len(bare)) / pages < 600
    assert opened(reader, maps).cache_bytes > opened(reader, bare).cache_bytes + 200 * pages


def test_what_is_recorded_is_not_learned_again(loops: SimpleNamespace) -> None:
    table = wide_table(600)
    reader = written_wide(table)
    source = opened(reader, recorded(reader))
    source.fetch(reader, [(5, 0)], ["html"])
    assert source.learned == 1  # the page map


@needs_loops
def test_any_changed_byte_is_noticed_and_maps_of_another_file_are_refused() -> None:
    reader = written_wide(wide_table(600))
    maps, digest = recorded(reader), open_mapped(reader, "parquet").digest
    check_maps("parquet", maps, digest)
    for at in positions(range(0, len(maps), 3)):
        changed = maps[:at] + bytes([maps[at] ^ 1]) + maps[at + 1 :]
        with pytest.raises(DamagedMaps):
            opened(reader, changed)
        with pytest.raises(DamagedMaps):
            check_maps("parquet", maps[:at], digest)
    other = written_wide(wide_table(500, seed=2))
    with pytest.raises(DamagedMaps, match="page maps of a file whose footer has digest"):
        opened(other, maps)


@needs_loops
def test_value_maps_under_a_right_checksum_that_cannot_be_read_are_refused() -> None:
    reader = written_wide(wide_table(600))
    maps = recorded(reader)
    end = len(maps) - len(map_codec.encode_values({}))
    for body in (maps[8:end], maps[8:24] + b"\xff\xff\0\0" + maps[28:], maps[8:] + b"more"):
        with pytest.raises(DamagedMaps):
            opened(reader, map_codec._with_checksum(b"GPM2", body))


@needs_loops
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_a_damaged_page_has_no_map_and_the_others_have(coded: bool) -> None:
    """The pages have checksums. The page index says where they lie, so that their headers are not read before."""
    table = coded_table(60_000) if coded else wide_table(1500)
    reader = (written_coded if coded else written_wide)(table, compression="snappy", write_page_checksum=True)
    digest = open_mapped(reader, "parquet").digest
    sound, maps = reader.data, recorded(reader)
    values = map_codec.decode_maps(maps, digest)[1]
    assert values is not None
    dice = random.Random(4)
    for key in dice.sample(list(values), min(len(values), examples(8))):
        at = key[2] + dice.randrange(key[3])
        reader.data = sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :]
        left = map_codec.decode_maps(recorded(reader), digest)[1]
        assert left is not None
        assert set(left) == set(values) - {key}
        assert not opened(reader, maps).has_maps(reader, maps)
        assert opened(reader, maps).has_maps(reader, recorded(reader))
        column = open_source(reader, "parquet").schema.names[key[1]]
        rows, source = [(row, 0) for row in range(0, table.num_rows, 50)], opened(reader, recorded(reader))
        with pytest.raises(DamagedSource):
            source.fetch(reader, rows, [column])


@needs_loops
@pytest.mark.parametrize("layout", ["snappy", "uncompressed", "snappy, version 2"])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "dictionary"])
def test_maps_of_damaged_pages_give_errors_or_what_whole_reads_give(coded: bool, layout: str) -> None:
    """The pages have no checksums. Their damage never makes a build fail."""
    table = coded_table(30_000) if coded else wide_table(600)
    reader = (written_coded if coded else written_wide)(table, **LAYOUTS[layout])
    columns = ["text", "sorted", "html"] if coded else ["url", "html", "large"]
    sound, pages, dice = reader.data, open_source(reader, "parquet").scan_bytes(columns), random.Random(6)
    for _ in range(examples(60)):
        at = 4 + dice.randrange(pages)
        reader.data = sound[:at] + bytes([sound[at] ^ 1 << dice.randrange(8)]) + sound[at + 1 :]
        maps = recorded(reader)
        for row in dice.sample(range(table.num_rows), 5):
            try:
                found = opened(reader, maps).fetch(reader, [(row, 0)], columns)
                whole = open_source(reader, "parquet").fetch(reader, [(row, 0)], columns)
            except DamagedSource:
                continue
            assert raw(found) == raw(whole)


@needs_loops
def test_a_file_says_whether_value_maps_are_its_own() -> None:
    reader = written_wide(wide_table(1500))
    source = open_mapped(reader, "parquet")
    maps = recorded(reader)
    assert source.has_maps(reader, maps)
    values = map_codec.decode_maps(maps, source.digest)[1]
    assert values is not None
    learned = {key: values.get(key) for key in values}
    one, other, *_ = sorted(learned, key=lambda key: key[2])
    learned[one] = learned[other]
    pages = map_codec.RecordedMaps(maps, source.digest)
    of_pages = {key: pages.map_of(key, source.rows or 0, 0, reader.size) for key in pages}
    lie = map_codec.encode_maps(of_pages, source.digest, learned)  # type: ignore[arg-type]
    check_maps("parquet", lie, source.digest)
    assert not source.has_maps(reader, lie)


@needs_loops
def test_integers_are_little_endian_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = written_wide(wide_table(600))
    digest = open_mapped(reader, "parquet").digest
    values = map_codec.decode_maps(recorded(reader), digest)[1]
    assert values is not None
    made = {key: values.get(key) for key in values}
    little = map_codec.encode_values(made)  # type: ignore[arg-type]
    monkeypatch.setattr(map_codec, "sys", SimpleNamespace(byteorder="big"))
    swapped = map_codec.encode_values(made)  # type: ignore[arg-type]
    assert swapped != little
    again = map_codec.RecordedValues(swapped)
    for key, map in made.items():
        found = again.get(key)
        assert map is not None
        assert found is not None
        assert found.stored() == map.stored()


def test_a_table_without_rows_has_none() -> None:
    reader = BytesReader(written(pa.table({"a": pa.array([], pa.string())})))
    assert opened(reader, recorded(reader)).rows == 0
