"""A scan gives each entry once and in order, with each way to decode, and checks the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.base.varints import encode_signed
from gnomon.btree import BTreeError, BTreeReader, Column, DamagedIndexFile, EntrySchema
from gnomon.btree import columns as columns_module
from gnomon.btree import format as fmt
from gnomon.btree import scan as scan_module
from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter
from gnomon.btree.errors import Irregular
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import stored_values
from tests.btree.files import (
    NAME,
    SYNC,
    URL_SCHEMA,
    Bytes,
    Entry,
    as_dione,
    batch,
    header_of,
    opened,
    url_entries,
    write,
)
from tests.btree.test_reader import files
from tests.btree.vectors import SOUND, open_vector
from tests.profiles import examples, positions

AT_ONCE, ONE_BY_ONE, AS_MEASURED = 0.0, 1e9, columns_module.STEP_US


@contextmanager
def decoding(step_us: float, leaves: int = scan_module.LEAVES_AT_ONCE, size: int = 1 << 26) -> Iterator[None]:
    """Scans with this estimated cost of a step of many nodes, and these numbers of leaves or bytes at once."""
    sizes = patch.multiple(scan_module, LEAVES_AT_ONCE=leaves, CHUNK_BYTES=size)
    with sizes, patch.object(columns_module, "STEP_US", step_us):
        yield


def entries_of(tree: BTreeReader) -> list[Entry]:
    """The entries of `scan_batches`, in stored form."""
    out: list[Entry] = []
    for part in tree.scan_batches():
        assert part.schema == pa.schema([(c.name, key_type(c.type).arrow) for c in tree.schema.columns])
        part.validate(full=True)
        columns = [stored_values(part[column.name], column.type) for column in tree.schema.columns]
        keys = len(tree.schema.keys)
        out += [(row[:keys], row[keys:]) for row in zip(*columns, strict=True)]
    return out


@settings(max_examples=examples(150))
@given(
    files(),
    st.sampled_from([AT_ONCE, ONE_BY_ONE, AS_MEASURED, 0.5]),
    st.integers(1, 9),
    st.sampled_from([1, 400, 9999]),
)
def test_batches_hold_what_the_walk_gives(
    file: tuple[EntrySchema, list[Entry], bytes], step_us: float, leaves: int, size: int
) -> None:
    with decoding(step_us, leaves, size):
        tree = opened(file[2])
        assert repr(entries_of(tree)) == repr(file[1])
        assert tree.check() == len(file[1])


@pytest.mark.parametrize("step_us", [AT_ONCE, ONE_BY_ONE])
@pytest.mark.parametrize("name", SOUND)
def test_files_of_diones_scan_alike(name: str, step_us: float) -> None:
    tree = open_vector(name)
    with decoding(step_us, leaves=500):
        assert entries_of(tree) == list(tree.scan())


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_every_codec_scans(codec: str) -> None:
    entries = url_entries(5000)
    tree = opened(write(URL_SCHEMA, entries, codec=codec, node_bytes=900))
    with decoding(AT_ONCE):
        assert entries_of(tree) == entries


def test_only_the_columns_asked_for_are_given_and_in_that_order() -> None:
    tree = opened(write(URL_SCHEMA, url_entries(300)))
    (batch,) = tree.scan_batches(["row", "url"])
    assert batch.schema.names == ["row", "url"]
    assert batch["row"].to_pylist() == list(range(300))
    assert [one.num_rows for one in tree.scan_batches([])] == [300]
    with pytest.raises(BTreeError, match="no column nothing; it has url, file, row"):
        tree.scan_batches(["nothing"])


def test_an_empty_file_scans_to_nothing() -> None:
    tree = opened(write(URL_SCHEMA, []))
    assert list(tree.scan_batches()) == []
    census = tree.census()
    assert (census.entries, census.nodes, census.height) == (0, 0, 1)


def _dione(entries: list[Entry]) -> bytes:
    writer = DioneWriter(URL_SCHEMA, interval=60, height=3, codec="null", sync=SYNC)
    writer.write(batch(URL_SCHEMA, entries))
    return b"".join(writer.finish().chunks)


def test_a_scan_reads_forward_in_long_ranges_and_no_byte_twice() -> None:
    file = Bytes(write(URL_SCHEMA, url_entries(60_000), codec="null"))
    tree = BTreeReader(file)
    opening = list(file.reads)
    file.reads.clear()
    stats = LookupStats()
    assert sum(one.num_rows for one in tree.scan_batches(stats=stats)) == 60_000
    assert file.reads == sorted(file.reads)
    assert stats.reads == len(file.reads) <= 4
    assert stats.bytes <= file.size < stats.bytes + sum(length for _, length in opening)


def test_a_scan_of_diones_order_reads_in_long_ranges() -> None:
    entries = url_entries(60_000)
    file = Bytes(_dione(entries))
    tree = BTreeReader(file)
    stats = LookupStats()
    with decoding(AT_ONCE):
        assert sum(one.num_rows for one in tree.scan_batches(stats=stats)) == len(entries)
    assert stats.reads < 50  # one for each inner node, which is between leaves, and some for leaves
    assert stats.bytes < 1.5 * file.size


def test_few_leaves_are_in_memory_at_a_time() -> None:
    tree = opened(write(URL_SCHEMA, url_entries(20_000), node_bytes=1000))
    nodes = tree.census().nodes
    with decoding(AT_ONCE, leaves=50):
        sizes = [one.num_rows for one in tree.scan_batches()]
    assert len(sizes) >= nodes // 60
    assert max(sizes) < 3 * 20_000 * 50 / nodes


@pytest.mark.slow
def test_nodes_larger_than_expected_are_taken_fewer_at_a_time() -> None:
    entries = url_entries(20_000)
    tree = opened(write(URL_SCHEMA, entries, node_bytes=50_000))
    with decoding(AT_ONCE, size=500_000):
        sizes = [one.num_rows for one in tree.scan_batches()]
        assert max(sizes) * 60 < 500_000
        assert entries_of(tree) == entries


# -- trees and files that our writers do not make --------------------------------------------------------------------


def _file(*blocks: bytes, entries: int) -> bytes:
    plain = header_of(write(URL_SCHEMA, url_entries(3), codec="null")).metadata
    keep = {key: plain[key] for key in (fmt.SCHEMA_KEY, fmt.CODEC_KEY, fmt.KEY_VALUE_KEY)}
    numbers = {fmt.DATA_BYTES_KEY: sum(map(len, blocks)), fmt.ENTRIES_KEY: entries}
    metadata = {**keep, **{key: str(number).encode() for key, number in numbers.items()}}
    return fmt.encode_header(metadata, SYNC) + b"".join(blocks)


def _block(*records: tuple[str, int | None], text: bytes = b"f") -> bytes:
    out = b""
    for key, link in records:
        out += b"\x02" + encode_signed(len(key)) + key.encode() + b"\x02" + encode_signed(len(text)) + text + b"\x02"
        out += encode_signed(7) + (fmt.NULL_LINK if link is None else fmt.LINK_BRANCH + encode_signed(link))
    return fmt.encode_block(len(records), out, SYNC)


def _lopsided() -> bytes:
    """Three levels below the root's second record, two below its first."""
    deep = _block(("e", None))
    inner = _block(("d", len(deep)), ("f", None))
    flat = _block(("b", None))
    sizes = len(deep), len(deep) + len(inner), len(deep) + len(inner) + len(flat)
    return _file(_block(("a", sizes[2]), ("c", sizes[1]), ("g", None)), flat, inner, deep, entries=7)


@pytest.mark.parametrize("step_us", [AT_ONCE, ONE_BY_ONE])
@pytest.mark.parametrize("leaves", [1, 9])
def test_a_lopsided_tree_of_diones_is_walked_and_no_entry_comes_twice(step_us: float, leaves: int) -> None:
    tree = opened(as_dione(_lopsided()))
    with decoding(step_us, leaves):
        assert [key for key, _ in entries_of(tree)] == [(key,) for key in "abcdefg"] == [k for k, _ in tree.scan()]
        census = tree.census()
    assert (census.entries, census.nodes, census.height) == (7, 4, 3)


def test_a_lopsided_tree_of_ours_is_refused() -> None:
    with pytest.raises(DamagedIndexFile, match="a leaf with links, at a level whose other leaves have none"):
        opened(_lopsided()).check()


def test_a_file_of_ours_whose_nulls_are_greatest_is_refused() -> None:
    sound = write(URL_SCHEMA, url_entries(3), codec="null")
    metadata = header_of(sound).metadata
    metadata = {
        **metadata,
        fmt.SCHEMA_KEY: metadata[fmt.SCHEMA_KEY].replace(b'["null","string"]', b'["string","null"]'),
    }
    with pytest.raises(DamagedIndexFile, match="null is not the first branch of a key's union"):
        opened(fmt.encode_header(fmt.sealed(metadata, SYNC), SYNC) + sound[header_of(sound).end :])


LEAVES = [_block(("b", None)), _block(("d", None))]


def _three(first: bytes = LEAVES[0], second: bytes = LEAVES[1], between: bytes = b"") -> bytes:
    links = len(first) + len(between) + len(second), len(second)
    return _file(_block(("a", links[0]), ("c", links[1])), first, between, second, entries=4)


BROKEN = {
    "text that is not UTF-8": (
        _three(second=_block(("d", None), text=b"\xff")),
        "column file: text that is not UTF-8",
        "second",
    ),
    "a leaf out of order": (
        _three(second=_block(("d", None), ("c", None))),
        "keys of a node are not in order",
        "second",
    ),
    "a leaf below its parent": (_three(second=_block(("B", None))), "interval", "second"),
    "bytes left over": (
        _three(second=fmt.encode_block(1, LEAVES[1][2:-16] + b"\x00", SYNC)),
        "cannot be decoded",
        "second",
    ),
    "bytes between blocks": (_three(between=b"\x00" * 7), "no link reaches the 7 bytes", "between"),
    "another number of entries": (
        _three(second=_block(("d", None), ("e", None))),
        "expected 4 entries, found 5",
        "root",
    ),
}


@pytest.mark.parametrize("step_us", [AT_ONCE, ONE_BY_ONE])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named_with_its_block(name: str, step_us: float) -> None:
    data, message, where = BROKEN[name]
    with decoding(step_us), pytest.raises(DamagedIndexFile, match=message) as error:
        opened(data).check()
    start = header_of(data).end
    first = fmt.decode_block_frame(data[start : start + fmt.BLOCK_HEAD_BYTES], start, len(data), NAME).end
    places = {"root": start, "between": first + len(LEAVES[0]), "second": first + len(LEAVES[0])}
    assert error.value.path == NAME
    assert error.value.offset == places[where]


@pytest.mark.parametrize("step_us", [AT_ONCE, ONE_BY_ONE])
def test_the_first_key_of_a_batch_is_compared_with_the_last_of_the_batch_before(step_us: float) -> None:
    with decoding(step_us, leaves=1), pytest.raises(DamagedIndexFile, match="interval"):
        opened(_three(first=_block(("b", None), ("z", None)))).check()


@pytest.mark.parametrize("step_us", [AT_ONCE, ONE_BY_ONE])
@pytest.mark.parametrize("leaves", [1, 9])
def test_a_run_split_between_nodes_is_refused_where_the_header_says_none_is(step_us: float, leaves: int) -> None:
    split = _three(first=_block(("c", None)))
    start = header_of(split).end
    metadata = fmt.sealed({**header_of(split).metadata, fmt.SPLIT_RUNS_KEY: b"0"}, SYNC)
    denied = fmt.encode_header(metadata, SYNC) + split[start:]
    with decoding(step_us, leaves):
        assert opened(split).check() == 4
        with pytest.raises(DamagedIndexFile, match="interval"):
            opened(denied).check()
    with pytest.raises(DamagedIndexFile, match="interval"):
        opened(denied).get(("bb",))


def test_a_changed_payload_of_diones_is_refused_or_scans_as_it_walks() -> None:
    data = _three(_block(("b", None), ("bb", None)), _block(("d", None), ("e", None), ("f", None)))
    data = as_dione(data)
    assert opened(data).check() == 7
    for at in positions(range(header_of(data).end, len(data))):
        for mask in (1, 2, 4, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= mask
            with decoding(AT_ONCE):
                fast = _outcome(bytes(damaged))
            with patch.object(scan_module.Scan, "_batches", side_effect=Irregular("", NAME, 0)):
                assert _outcome(bytes(damaged)) == fast, (at, mask)


def _outcome(data: bytes) -> list[Entry] | None:
    try:
        return entries_of(opened(data))
    except DamagedIndexFile as error:
        where = error.path, error.offset
    assert where[0] == NAME
    assert 0 <= where[1] <= len(data)
    return None


def test_an_int_beyond_its_type_is_refused() -> None:
    schema = EntrySchema((Column("k", "bigint", False),), (Column("v", "bigint", False),))
    data = write(schema, [((i,), (2**31 + i,)) for i in range(50)], codec="null", node_bytes=60)
    header = header_of(data)
    avro = header.metadata[fmt.SCHEMA_KEY].replace(b'{"name":"v","type":"long"}', b'{"name":"v","type":"int"}')
    metadata = fmt.sealed({**header.metadata, fmt.SCHEMA_KEY: avro}, SYNC)
    damaged = fmt.encode_header(metadata, SYNC) + data[header.end :]
    for step_us in (AT_ONCE, ONE_BY_ONE):
        with decoding(step_us), pytest.raises(DamagedIndexFile, match="a value that int cannot hold"):
            opened(damaged).check()


def test_no_read_of_a_scan_is_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.LONG_READ_BYTES", 20_000)
    file = Bytes(write(URL_SCHEMA, url_entries(20_000), codec="null"))
    assert BTreeReader(file).check() == 20_000
    assert len(file.reads) > 20
    assert max(length for _, length in file.reads[1:]) < 20_000 + 2 * 8192


def test_inner_nodes_are_taken_fewer_at_a_time_where_they_are_long() -> None:
    entries = url_entries(4000)
    tree = opened(write(URL_SCHEMA, entries, node_bytes=1))
    with decoding(AT_ONCE, size=40_000):
        sizes = [one.num_rows for one in tree.scan_batches()]
        assert max(sizes) < 400
        assert entries_of(tree) == entries
