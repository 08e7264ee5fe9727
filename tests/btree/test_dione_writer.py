"""The writer of Dione's files: equal byte for byte, except for runs of equal keys, which Dione's reader finds
completely."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.btree import BTreeError, Column, EntrySchema, UnsortedKeys, dione
from gnomon.btree import format as fmt
from gnomon.btree.codecs import decompress
from gnomon.btree.dione import DioneWriter
from gnomon.btree.encode import SortedRows
from tests.btree.files import NAME, SYNC, URL_SCHEMA, Entry, batch, dione_get, header_of, opened, url_entries
from tests.btree.vectors import SETTINGS, open_vector, read_vector, stored_entries
from tests.profiles import examples

WITH_DUPLICATES = {"dups_example_i3_h2_null", "dups_i3_h3_deflate", "nullkeys_i4_h3_deflate"}
OTHER_LIBRARY = {"str_n200_i10_h3_snappy", "str_n200_i10_h3_bzip2"}  # Java's and C's encoders choose different matches
SAFE = {"py_dups_safe_i1_h4": (1, 4), "py_dups_safe_i3_h3": (3, 3), "py_big_nodes_h1": (1000, 1)}


def _write(
    schema: EntrySchema,
    entries: list[Entry],
    interval: int,
    height: int,
    codec: str = "null",
    sync: bytes = SYNC,
    rows: int = 997,
) -> bytes:
    """The file of these entries, written in batches of `rows` rows."""
    writer = DioneWriter(schema, interval, height, codec, sync)
    for at in range(0, len(entries), rows):
        writer.write(batch(schema, entries[at : at + rows]))
    file = writer.finish()
    assert (file.entries, file.nodes) == (len(entries), len(file.chunks) - 1)
    return b"".join(file.chunks)


def _again(name: str, interval: int, height: int) -> tuple[bytes, bytes]:
    """A vector, and the file of our writer with its entries."""
    tree, data = open_vector(f"{name}.btree.avro"), read_vector(f"{name}.btree.avro")
    entries = stored_entries(tree, f"{name}.btree.avro")
    return data, _write(tree.schema, entries, interval, height, tree.codec, header_of(data).sync)


def _settings(name: str) -> tuple[int, int]:
    meta = json.loads(read_vector(f"{name}.meta.json"))
    return meta["interval"], meta["height"]


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - WITH_DUPLICATES - OTHER_LIBRARY))
def test_a_vector_is_made_again_byte_for_byte_with_its_header(name: str) -> None:
    vector, made = _again(name, *_settings(name))
    assert made == vector


def _payloads(data: bytes) -> dict[bytes, bytes]:
    """The payload of each node by its records."""
    at, found = header_of(data).end, {}
    codec = header_of(data).metadata[fmt.CODEC_KEY].decode()
    while at < len(data):
        frame = fmt.decode_block_frame(data[at : at + fmt.BLOCK_HEAD_BYTES], at, len(data), NAME)
        payload = data[frame.payload : frame.payload + frame.payload_bytes]
        found[decompress(codec, payload, fmt.NODE_LIMIT)] = payload
        at = frame.end
    return found


@pytest.mark.parametrize("name", sorted(OTHER_LIBRARY))
def test_where_javas_compression_differs_all_else_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read_vector(f"{name}.btree.avro")
    codec = header_of(data).metadata[fmt.CODEC_KEY].decode()
    monkeypatch.setitem(dione.COMPRESSORS, codec, _payloads(data).__getitem__)
    vector, made = _again(name, *_settings(name))
    assert made == vector


@pytest.mark.parametrize("name", sorted(WITH_DUPLICATES))
def test_only_runs_of_equal_keys_are_placed_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vector, ours = _again(name, *_settings(name))
    assert list(opened(ours).scan()) == list(opened(vector).scan())
    end = DioneWriter._end_of_leaf

    def as_dione(self: DioneWriter, row: int, rows: SortedRows) -> int:
        return end(self, row, SortedRows(rows.records, np.arange(len(rows))))

    monkeypatch.setattr(DioneWriter, "_end_of_leaf", as_dione)
    vector, made = _again(name, *_settings(name))
    assert made[header_of(made).end :] == vector[header_of(vector).end :]


@pytest.mark.parametrize("name", SAFE)
def test_files_that_diones_reader_was_seen_to_answer_are_made_again(name: str) -> None:
    vector, made = _again(f"python-written/{name}", *SAFE[name])
    assert made[header_of(made).end :] == vector[header_of(vector).end :]


@settings(max_examples=examples(80))
@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 4))
def test_diones_reader_finds_every_row_of_every_key(copies: list[int], interval: int, height: int) -> None:
    keys = [f"{key:03d}" for key, count in enumerate(copies) for _ in range(count)]
    data = _write(URL_SCHEMA, [((key,), ("f", row)) for row, key in enumerate(keys)], interval, height)
    tree = opened(data)
    assert tree.check() == len(keys)
    assert tree.census().height <= height
    for key in {*keys, "absent", ""}:
        rows = [row for row, other in enumerate(keys) if other == key]
        assert [record["row"] for record in dione_get(data, (key,))] == rows
        assert [row for _, row in tree.get((key,))] == rows


@settings(max_examples=examples(40))
@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 4), st.integers(1, 30))
def test_batches_of_any_length_make_one_file(copies: list[int], interval: int, height: int, rows: int) -> None:
    entries: list[Entry] = [((f"{key:03d}",), ("f", row)) for key, count in enumerate(copies) for row in range(count)]
    made = _write(URL_SCHEMA, entries, interval, height, rows=rows)
    assert made == _write(URL_SCHEMA, entries, interval, height)


def test_the_header_holds_diones_keys_alone() -> None:
    data = _write(URL_SCHEMA, url_entries(5), 3, 2, "deflate")
    header = header_of(data)
    assert list(header.metadata) == [fmt.SCHEMA_KEY, fmt.CODEC_KEY, fmt.KEY_VALUE_KEY, fmt.DATA_BYTES_KEY]
    schema: Any = json.loads(header.metadata[fmt.SCHEMA_KEY])
    assert schema["doc"] == "doc"
    assert schema["fields"][0] == {"name": "url", "type": ["string", "null"]}


def test_nulls_come_last() -> None:
    rows: list[Entry] = [(("a",), ("f", 0)), ((None,), ("f", None))]
    assert list(opened(_write(URL_SCHEMA, rows, 1, 2)).scan()) == rows
    with pytest.raises(UnsortedKeys):
        _write(URL_SCHEMA, rows[::-1], 1, 2)


def test_what_dione_cannot_read_is_not_written() -> None:
    with pytest.raises(BTreeError, match="signed bytes"):
        DioneWriter(EntrySchema((Column("k", "binary"),), (Column("v", "int"),)), 3, 2)
    for bad in [(0, 2, "null"), (3, 0, "null"), (3, 2, "xz")]:
        with pytest.raises(BTreeError, match="Dione has no files"):
            DioneWriter(URL_SCHEMA, *bad)
