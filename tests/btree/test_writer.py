"""The layout of a file: one block per node, level order, runs of equal keys, the numbers in the header."""

import random
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.btree import BTreeError, BTreeWriter, Column, EntrySchema, UnsortedKeys
from gnomon.btree import format as fmt
from gnomon.btree.blocks import LookupStats
from tests.btree.files import (
    NAME,
    SYNC,
    URL_SCHEMA,
    Entry,
    avro_blocks,
    batch,
    dione_get,
    header_of,
    opened,
    url_entries,
    write,
)
from tests.profiles import examples

COPIES = st.lists(st.integers(1, 30), min_size=1, max_size=60)


def _runs(copies: Sequence[int]) -> list[Entry]:
    """Keys 0, 1, 2 ... as text, each with its number of copies."""
    keys = [f"{key:03d}" for key, count in enumerate(copies) for _ in range(count)]
    return [((key,), ("f", row)) for row, key in enumerate(keys)]


@settings(max_examples=examples(40))
@given(COPIES, st.integers(1, 300), st.sampled_from([40, 120, fmt.NODE_LIMIT]), st.data())
def test_the_same_entries_make_the_same_bytes_however_they_are_cut(
    copies: list[int], node_bytes: int, limit: int, data: st.DataObject
) -> None:
    entries = _runs(copies)
    whole = write(URL_SCHEMA, entries, node_bytes=node_bytes, node_limit=limit)
    cuts = data.draw(st.lists(st.integers(0, len(entries)), max_size=8))
    assert write(URL_SCHEMA, entries, cuts, node_bytes=node_bytes, node_limit=limit) == whole
    assert write(URL_SCHEMA, entries, range(1, len(entries)), node_bytes=node_bytes, node_limit=limit) == whole


def test_large_batches_change_no_byte() -> None:
    entries = url_entries(30_000)
    whole = write(URL_SCHEMA, entries)
    assert write(URL_SCHEMA, entries, range(1000, 30_000, 1000)) == whole


def test_without_a_sync_marker_each_file_has_its_own() -> None:
    files = [write(URL_SCHEMA, url_entries(3), sync=None) for _ in range(2)]
    assert files[0] != files[1]
    assert header_of(write(URL_SCHEMA, url_entries(3))).sync == SYNC
    with pytest.raises(BTreeError, match="16 bytes"):
        BTreeWriter(URL_SCHEMA, sync=b"short")


@settings(max_examples=examples(60))
@given(COPIES, st.integers(1, 200), st.sampled_from(["null", "deflate", "zstandard"]))
def test_a_run_of_equal_keys_never_crosses_a_node_below_the_limit(
    copies: list[int], node_bytes: int, codec: str
) -> None:
    """So Dione's reader, which goes down once per node, finds every row of every key."""
    entries = _runs(copies)
    data = write(URL_SCHEMA, entries, node_bytes=node_bytes, codec=codec)
    for key in range(len(copies)):
        expected = [row for (name,), (_, row) in entries if name == f"{key:03d}"]
        assert [record["row"] for record in dione_get(data, (f"{key:03d}",))] == expected
    assert dione_get(data, ("absent",)) == dione_get(data, ("",)) == []


@settings(max_examples=examples(60))
@given(COPIES, st.integers(1, 200), st.integers(1, 400))
def test_a_run_beyond_the_limit_spills_and_is_still_found(copies: list[int], node_bytes: int, limit: int) -> None:
    entries = _runs(copies)
    data = write(URL_SCHEMA, entries, node_bytes=node_bytes, node_limit=limit)
    tree = opened(data)
    assert tree.check() == len(entries)
    for key in range(len(copies)):
        assert [row for _, row in tree.get((f"{key:03d}",))] == [
            row for (name,), (_, row) in entries if name == f"{key:03d}"
        ]


@settings(max_examples=examples(40))
@given(COPIES, st.integers(1, 200), st.sampled_from([60, 200, fmt.NODE_LIMIT]))
def test_the_header_says_whether_a_run_is_split(copies: list[int], node_bytes: int, limit: int) -> None:
    """If no run is split, a key above the leaves is searched on one path only."""
    entries = _runs(copies)
    data = write(URL_SCHEMA, entries, node_bytes=node_bytes, node_limit=limit)
    split = header_of(data).number(fmt.SPLIT_RUNS_KEY)
    rows = {key: [value[1] for other, value in entries if other == key] for key, _ in entries}
    complete = all([record["row"] for record in dione_get(data, key)] == rows[key] for key in rows)
    assert split == 0 or limit < fmt.NODE_LIMIT
    assert complete or split
    tree = opened(data)
    for key in rows:
        stats = LookupStats()
        tree.get(key, stats)
        assert split or stats.nodes <= tree.census().height


def test_leaves_of_a_run_end_at_the_limit() -> None:
    data = write(URL_SCHEMA, _runs([500]), codec="null", node_bytes=100, node_limit=300)
    assert len(avro_blocks(data)) > 10
    for _, length, records in avro_blocks(data):
        assert length <= 300 + 4 * len(records) + fmt.BLOCK_HEAD_BYTES + fmt.SYNC_BYTES


@settings(max_examples=examples(40))
@given(st.integers(0, 400), st.integers(1, 400))
def test_each_node_is_one_block_in_level_order(rows: int, node_bytes: int) -> None:
    data = write(URL_SCHEMA, url_entries(rows), node_bytes=node_bytes)
    blocks = avro_blocks(data)
    by_offset = {offset: records for offset, _, records in blocks}
    upper_end = header_of(data).end + opened(data).upper_bytes
    level = [header_of(data).end] if rows else []
    reached: list[int] = []
    while level:  # the offsets, level by level, must equal the offsets in the file
        reached += level
        links = [record[fmt.LINK_FIELD] for offset in level for record in by_offset[offset]]
        children = [len(data) - link for link in links if link is not None]
        assert children or all(offset >= upper_end for offset in level) or len(by_offset) == 1
        if not children and len(reached) > 1:
            keys = [record["url"] for offset in level for record in by_offset[offset]]
            assert keys == sorted(keys)
        level = children
    assert reached == [offset for offset, _, _ in blocks]


@settings(max_examples=examples(30))
@given(st.integers(0, 300), st.integers(1, 200), st.sampled_from(["null", "deflate", "snappy"]))
def test_the_header_tells_the_truth(rows: int, node_bytes: int, codec: str) -> None:
    writer = BTreeWriter(URL_SCHEMA, codec=codec, node_bytes=node_bytes)
    writer.write(batch(URL_SCHEMA, url_entries(rows)))
    file = writer.finish()
    data = b"".join(file.chunks)
    header, blocks = header_of(data), avro_blocks(data)
    assert header.metadata[fmt.CODEC_KEY] == codec.encode()
    assert header.metadata[fmt.KEY_VALUE_KEY] == b"url|file,row"
    assert header.number(fmt.DATA_BYTES_KEY) == len(data) - header.end == sum(length for _, length, _ in blocks)
    assert header.number(fmt.ENTRIES_KEY) == rows == file.entries
    assert header.number(fmt.NODE_BYTES_KEY) == max((length for _, length, _ in blocks), default=0)
    assert (file.size, file.crc32, file.nodes) == (len(data), zlib.crc32(data), len(blocks))
    census = opened(data).census()
    assert (census.entries, census.nodes, census.height, census.bytes) == (rows, len(blocks), file.height, len(data))


@pytest.mark.parametrize("cut", [[], [1], [2], [1, 2]])
def test_unsorted_keys_are_refused_with_their_row(cut: list[int]) -> None:
    rows: list[Entry] = [(("a",), ("f", 0)), (("c",), ("f", 1)), (("b",), ("f", 2))]
    with pytest.raises(UnsortedKeys, match="row 2 "):
        write(URL_SCHEMA, rows, cut)


def test_a_null_after_a_value_is_unsorted() -> None:
    with pytest.raises(UnsortedKeys):
        write(URL_SCHEMA, [(("a",), ("f", 0)), ((None,), ("f", 1))])


def test_a_batch_of_other_columns_is_refused() -> None:
    writer = BTreeWriter(URL_SCHEMA)
    with pytest.raises(BTreeError, match="3 columns, found 1"):
        writer.write(pa.table({"url": ["a"]}))


def test_a_row_longer_than_a_node_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "NODE_LIMIT", 1000)
    with pytest.raises(BTreeError, match="over the limit"):
        write(URL_SCHEMA, [(("a" * 2000,), ("f", 0))])


def test_a_run_of_very_many_short_rows_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "NODE_RECORDS", 100)
    data = write(URL_SCHEMA, _runs([500]))
    assert all(len(records) <= 100 for _, _, records in avro_blocks(data))
    assert len(opened(data).get(("000",))) == opened(data).check() == 500


def test_dictionary_keys_and_chunked_columns_are_written_as_plain_ones() -> None:
    schema = EntrySchema((Column("k", "string"),), (Column("v", "int"),))
    plain = pa.table({"k": ["a", "a", "b"], "v": pa.array([1, 2, 3], pa.int32())})
    coded = plain.set_column(0, "k", plain.column(0).dictionary_encode())
    chunked = pa.concat_tables([coded.slice(0, 1), coded.slice(1)])
    files = []
    for table in (plain, coded, chunked):
        writer = BTreeWriter(schema, sync=SYNC)
        writer.write(table)
        files.append(b"".join(writer.finish().chunks))
    assert files[0] == files[1] == files[2]


def test_a_file_of_random_cuts_and_copies_equals_its_entries() -> None:
    rnd = random.Random(3)
    entries = _runs([rnd.choice([1, 1, 1, 2, 50]) for _ in range(400)])
    data = write(URL_SCHEMA, entries, sorted(rnd.sample(range(len(entries)), 9)), node_bytes=300)
    assert list(opened(data).scan()) == entries
    assert fmt.decode_header(data, NAME) is not None


def test_an_entry_that_is_too_long_is_refused_with_its_row() -> None:
    rows: list[Entry] = [((f"{i}" + "a" * (5 << 20) * (i == 3),), ("f", i)) for i in range(5)]
    with pytest.raises(BTreeError, match=r"row 3 makes an entry of 52428\d\d bytes, the limit is 4194304"):
        write(URL_SCHEMA, rows, cuts=[2])


@pytest.mark.slow
def test_entries_of_any_length_that_is_taken_have_a_tree() -> None:
    rows: list[Entry] = [((f"{i:02d}" + "a" * (4_000_000),), ("f", i)) for i in range(60)]
    tree = opened(write(URL_SCHEMA, rows))
    assert tree.check() == len(rows)
    assert tree.get(rows[41][0]) == [rows[41][1]]
