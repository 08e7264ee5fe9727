"""A damaged file gives the right answer or DamagedIndexFile with path and offset.

What an index file can know about itself:
- a flip outside of the blocks' payloads is refused, or changes no entry (it hit a hint, or the schema's doc text);
  only the schema's words about a type (a decimal's scale, a logical type's name) are believed as they stand;
- with codec snappy, whose blocks end in a CRC, so is a flip inside a payload;
- with null, deflate and zstandard a flip inside a payload may give another valid payload. Then one node holds other
  keys or values; still they are in order, as many as the header says, and `get` and `scan` agree. The CRC of the
  whole file, which the index keeps beside it, finds these.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from btree import BTreeReader, DamagedIndexFile
from btree import format as fmt
from btree.keys import order_key
from tests.btree.files import NAME, SYNC, URL_SCHEMA, Bytes, Entry, header_of, opened, url_entries, write

CODECS = ["null", "deflate", "snappy", "zstandard"]
ENTRIES = url_entries(14, copies=2)
FILES = {codec: write(URL_SCHEMA, ENTRIES, codec=codec, node_bytes=160) for codec in CODECS}


def _payloads(data: bytes) -> list[range]:
    """Where the payload of each block lies."""
    found, at = [], header_of(data).end
    while at < len(data):
        frame = fmt.decode_block_frame(data[at : at + fmt.BLOCK_HEAD_BYTES], at, len(data), NAME)
        found.append(range(frame.payload, frame.payload + frame.payload_bytes))
        at = frame.end
    return found


def _try(data: bytes, ask: Callable[[BTreeReader], Any]) -> Any:
    """The answer, or None where the file is refused: then path and offset must be named."""
    try:
        return ask(opened(data))
    except DamagedIndexFile as error:
        refusal = error
    assert refusal.path == NAME
    assert 0 <= refusal.offset <= max(len(data), len(FILES["null"]))
    assert f"{NAME} at byte {refusal.offset}: " in str(refusal)
    return None


def _flipped(data: bytes, at: int) -> Iterator[bytes]:
    for mask in (1 << at % 8, 0xFF):
        damaged = bytearray(data)
        damaged[at] ^= mask
        yield bytes(damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_a_flip_outside_of_payloads_is_refused_or_harmless(codec: str) -> None:
    data = FILES[codec]
    inside = {at for payload in _payloads(data) for at in payload}
    for at in sorted(set(range(len(data))) - inside):
        for damaged in _flipped(data, at):
            assert _try(damaged, lambda tree: list(tree.scan())) in (None, ENTRIES), at
            for key in (ENTRIES[0][0], ENTRIES[9][0]):
                right = [value for other, value in ENTRIES if other == key]
                assert _try(damaged, lambda tree, key=key: tree.get(key)) in (None, right), at  # type: ignore[misc]


@pytest.mark.parametrize("codec", CODECS)
def test_a_flip_inside_a_payload_keeps_order_and_count_and_get_agrees_with_scan(codec: str) -> None:
    data = FILES[codec]
    for at in (at for payload in _payloads(data) for at in payload):
        for damaged in _flipped(data, at):
            found = _try(damaged, lambda tree: (tree.check(), list(tree.scan())))
            if codec == "snappy":
                assert found in (None, (len(ENTRIES), ENTRIES)), at
            if found is None:
                continue
            count, entries = found
            assert count == len(entries) == len(ENTRIES)
            keys = [order_key(key) for key, _ in entries]
            assert keys == sorted(keys)
            tree = opened(damaged)
            for key in {ENTRIES[9][0], *(key for key, _ in entries)}:
                assert tree.get(key) == [value for other, value in entries if other == key]


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_at_every_length_is_refused(codec: str) -> None:
    data = FILES[codec]
    for length in range(len(data)):
        assert _try(data[:length], lambda tree: list(tree.scan())) is None
    assert _try(data + b"\0", lambda tree: list(tree.scan())) is None


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_after_the_file_was_opened_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("btree.blocks.FIRST_READ_BYTES", 64)
    for length in range(header_of(FILES[codec]).end, len(FILES[codec])):
        file = Bytes(FILES[codec])
        tree = BTreeReader(file)
        file.data = FILES[codec][:length]
        with pytest.raises(DamagedIndexFile):
            list(tree.scan())


def _rebuilt(blocks: list[bytes], extra: dict[str, bytes] | None = None) -> bytes:
    """A file with the header of ours around other blocks."""
    metadata = {**header_of(FILES["null"]).metadata, fmt.DATA_BYTES_KEY: str(sum(map(len, blocks))).encode()}
    metadata[fmt.UPPER_BYTES_KEY] = b"0"
    return b"".join([fmt.encode_header({**metadata, **(extra or {})}, SYNC), *blocks])


def _record(key: str, row: int, link: int | None) -> bytes:
    text = fmt.encode_long(len(key)) + key.encode()
    value = b"\x02\x02f\x02" + fmt.encode_long(row)
    return b"\x02" + text + value + (fmt.NULL_LINK if link is None else fmt.LINK_BRANCH + fmt.encode_long(link))


def _block(*records: tuple[str, int, int | None]) -> bytes:
    return fmt.encode_block(len(records), b"".join(_record(*record) for record in records), SYNC)


LEAF = _block(("b", 1, None))
MANY = 3000


def _chain() -> bytes:
    """A tree as deep as it is long: each node holds one record, all of one key."""
    blocks: list[bytes] = [_block(("a", 0, None))]
    length = len(blocks[0])
    for _ in range(MANY):
        blocks.append(_block(("a", 0, length)))
        length += len(blocks[-1])
    return _rebuilt(blocks[::-1], {fmt.ENTRIES_KEY: str(MANY + 1).encode()})


def _lattice() -> bytes:
    """Each node's two records link to one child: 2 ** 60 paths."""
    blocks = [_block(("a", 0, None), ("a", 0, None))]
    length = len(blocks[0])
    for _ in range(60):
        blocks.append(_block(("a", 0, length), ("a", 0, length)))
        length += len(blocks[-1])
    return _rebuilt(blocks[::-1])


def test_a_tree_as_deep_as_it_is_long_is_walked_without_recursion() -> None:
    tree = opened(_chain())
    assert len(tree.get(("a",))) == tree.check() == MANY + 1


@pytest.mark.parametrize("ask", [lambda t: t.get(("a",)), lambda t: list(t.scan()), lambda t: t.check()])
def test_a_block_with_two_parents_is_refused_at_once(ask: Callable[[BTreeReader], object]) -> None:
    with pytest.raises(DamagedIndexFile, match="two links lead to one block"):
        ask(opened(_lattice()))


def _two_levels(link: int, leaf: bytes = LEAF, between: bytes = b"") -> bytes:
    return _rebuilt([_block(("a", 0, link), ("c", 2, None)), between, leaf], {fmt.ENTRIES_KEY: b"3"})


def test_the_sound_form_of_the_cases_below_reads() -> None:
    assert [key for key, _ in opened(_two_levels(len(LEAF))).scan()] == [("a",), ("b",), ("c",)]
    assert opened(_two_levels(len(LEAF))).check() == 3


BROKEN = {
    "a link to the root": (_two_levels(len(LEAF) + 37), "leads astray"),
    "a link of 0": (_two_levels(0), "leads astray"),
    "a negative link": (_two_levels(-5), "leads astray"),
    "a link before the file": (_two_levels(10**9), "leads astray"),
    "a link into a block": (_two_levels(len(LEAF) - 1), "records and|decoded|sync"),
    "a child below its parent's record": (_two_levels(len(LEAF), _block(("A", 1, None))), "interval"),
    "a child above the next record": (_two_levels(len(LEAF), _block(("d", 1, None))), "interval"),
    "an unsorted node": (_rebuilt([_block(("b", 0, None), ("a", 0, None))]), "not in order"),
    "a block no link reaches": (_two_levels(len(LEAF), between=LEAF), "no link reaches"),
    "other bytes between blocks": (_two_levels(len(LEAF), between=b"\0" * 5), "no link reaches"),
    "another number of entries": (_rebuilt([LEAF]), "expected 28 entries, found 1"),
    "a count of records that is too small": (
        _rebuilt([fmt.encode_block(1, _record("a", 0, None) * 2, SYNC)]),
        "decoded",
    ),
    "a count of records that is too large": (_rebuilt([fmt.encode_block(9, _record("a", 0, None), SYNC)]), "decoded"),
    "a huge count of records": (_rebuilt([fmt.encode_block(2**60, _record("a", 0, None), SYNC)]), "decoded"),
    "text that is none": (_rebuilt([_block(("a", 0, None)).replace(b"\x02f", b"\x02\xff")]), "UTF-8"),
    "a text as long as memory": (
        _rebuilt([fmt.encode_block(1, b"\x02" + fmt.encode_long(2**62) + b"a" * 9, SYNC)]),
        "decoded",
    ),
    "a text of negative length": (
        _rebuilt([fmt.encode_block(1, b"\x02" + fmt.encode_long(-9) + b"a" * 9, SYNC)]),
        "decoded",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_check_refuses(name: str) -> None:
    data, message = BROKEN[name]
    with pytest.raises(DamagedIndexFile, match=message) as error:
        opened(data).check()
    assert 0 <= error.value.offset <= len(data)


def test_bounds_are_inherited_from_the_levels_above() -> None:
    """A node below the last record of its parent ends before what follows the parent."""
    leaf = _block(("z", 3, None))
    inner = _block(("b", 1, len(leaf)))
    root = _block(("a", 0, len(leaf) + len(inner)), ("c", 2, None))
    with pytest.raises(DamagedIndexFile, match="interval"):
        opened(_rebuilt([root, inner, leaf], {fmt.ENTRIES_KEY: b"4"})).get(("b",))


HEADERS: dict[str, dict[str, bytes]] = {
    "codec": {fmt.CODEC_KEY: b"lzo"},
    "schema": {fmt.SCHEMA_KEY: b"[" * 100_000},
    "no record": {fmt.SCHEMA_KEY: b'"string"'},
    "odd fields": {fmt.SCHEMA_KEY: b'{"type":"record","name":"r","fields":[5]}'},
    "names": {fmt.KEY_VALUE_KEY: b"url|nothing"},
    "many names": {fmt.KEY_VALUE_KEY: b",".join([b"url"] * 100_000) + b"|row"},
    "number": {fmt.ENTRIES_KEY: b"many"},
    "upper": {fmt.UPPER_BYTES_KEY: b"999999"},
    "length": {fmt.DATA_BYTES_KEY: b"1"},
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_makes_no_sense_is_refused_at_opening(name: str) -> None:
    metadata = {**header_of(FILES["null"]).metadata, **HEADERS[name]}
    data = fmt.encode_header(metadata, SYNC) + FILES["null"][header_of(FILES["null"]).end :]
    with pytest.raises(DamagedIndexFile) as error:
        opened(data)
    assert error.value.path == NAME


def test_a_plain_avro_file_is_no_index_file() -> None:
    metadata = dict(header_of(FILES["null"]).metadata)
    del metadata[fmt.DATA_BYTES_KEY]
    with pytest.raises(DamagedIndexFile, match="data_bytes is missing"):
        opened(fmt.encode_header(metadata, SYNC))


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_a_block_that_unpacks_to_more_than_a_node_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Entry] = [(("a" * 5000,), ("f", 0))]
    data = write(URL_SCHEMA, entries, codec=codec)
    assert opened(data).check() == 1
    monkeypatch.setattr(fmt, "NODE_LIMIT", 4000)
    with pytest.raises(DamagedIndexFile, match="more than 4000 bytes"):
        opened(data).check()


def test_a_header_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "HEADER_LIMIT", 1 << 16)
    file = Bytes(fmt.MAGIC + fmt.encode_long(1) + fmt.encode_long(60_000) + b"x" * (1 << 20))
    with pytest.raises(DamagedIndexFile, match="expected a header"):
        BTreeReader(file)
    assert sum(length for _, length in file.reads) <= 1 << 17
