"""A damaged file gives the right answer or DamagedIndexFile with path and offset.

Any one byte that changes, and any cut, is found: by the header's CRC, by the framing and the sync markers, and by the
checksum of each payload. Only codec null has no checksum inside of a block. There a changed payload may be another
valid payload: one node holds other keys or values. Still they are in order, their number is the one in the header, and
`get` and `scan` agree. The CRC of the whole file, which the index stores, finds such changes.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from gnomon.base.varints import encode_signed
from gnomon.btree import BTreeReader, DamagedIndexFile, EntrySchema
from gnomon.btree import format as fmt
from gnomon.btree.blocks import LookupStats, Visit
from gnomon.btree.codecs import CHECKSUMS
from gnomon.btree.keys import Key, order_key
from gnomon.btree.reader import decoded
from tests.btree.files import NAME, SYNC, URL_SCHEMA, Bytes, Entry, as_dione, header_of, opened, url_entries, write
from tests.btree.small_files import CODECS, SHAPES
from tests.profiles import positions

ENTRIES = SHAPES["two levels, duplicates"][1]
FILES = {codec: write(URL_SCHEMA, ENTRIES, codec=codec, node_bytes=120) for codec in CODECS}


def _block_starts(data: bytes) -> list[int]:
    """The offset of each block."""
    return [header_of(data).end, *(payload.stop + fmt.SYNC_BYTES for payload in _payloads(data)[:-1])]


def _payloads(data: bytes) -> list[range]:
    """The place of each block's payload."""
    found, at = [], header_of(data).end
    while at < len(data):
        frame = fmt.decode_block_frame(data[at : at + fmt.BLOCK_HEAD_BYTES], at, len(data), NAME)
        found.append(range(frame.payload, frame.payload + frame.payload_bytes))
        at = frame.end
    return found


def _try(size: int, ask: Callable[[], Any]) -> Any:
    """The answer, or None if the file of this size is refused: then the error must have path and offset."""
    try:
        return ask()
    except DamagedIndexFile as error:
        refusal = error
    assert refusal.path == NAME
    assert 0 <= refusal.offset <= size
    assert f"{NAME} at byte {refusal.offset}: " in str(refusal)
    return None


def _flipped(data: bytes, at: int) -> Iterator[bytes]:
    """The file with one byte changed: two of its bits in turn, and all of them."""
    for mask in (1 << at % 8, 1 << (at + 5) % 8, 0xFF):
        damaged = bytearray(data)
        damaged[at] ^= mask
        yield bytes(damaged)


def _is_right_or_refused(damaged: bytes, schema: EntrySchema, entries: list[Entry]) -> bool:
    tree = _try(len(damaged), lambda: opened(damaged))
    if tree is None:
        return True
    right = tree.schema == schema and _try(len(damaged), lambda: list(tree.scan())) in (None, entries)
    keys = list(dict.fromkeys(key for key, _ in entries))
    answers = [[value for other, value in entries if other == key] for key in keys]
    right &= _try(len(damaged), lambda: tree.get_many(keys)) in (None, answers)
    for key, values in list(zip(keys, answers, strict=True))[:: len(keys) // 5 + 1]:
        right &= _try(len(damaged), lambda key=key: tree.get(key)) in (None, values)  # type: ignore[misc]
    return right


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_flip_of_any_byte_is_refused_or_changes_no_answer(shape: str, codec: str) -> None:
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, codec=codec, **options)
    assert list(opened(data).scan()) == entries
    for at in positions(range(len(data))):
        for damaged in _flipped(data, at):
            assert _is_right_or_refused(damaged, schema, entries), (at, data[at], damaged[at])


@pytest.mark.parametrize("shape", SHAPES)
def test_without_codec_a_flip_outside_of_payloads_is_refused_or_changes_no_answer(shape: str) -> None:
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, codec="null", **options)
    inside = {at for payload in _payloads(data) for at in payload}
    for at in positions(sorted(set(range(len(data))) - inside)):
        for damaged in _flipped(data, at):
            assert _is_right_or_refused(damaged, schema, entries), (at, data[at], damaged[at])


@pytest.mark.parametrize("shape", SHAPES)
def test_without_codec_a_flip_inside_a_payload_keeps_order_and_count_and_get_agrees_with_scan(shape: str) -> None:
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, codec="null", **options)
    for at in positions([at for payload in _payloads(data) for at in payload]):
        for damaged in _flipped(data, at):
            found = _try(len(data), lambda damaged=damaged: (opened(damaged).check(), list(opened(damaged).scan())))  # type: ignore[misc]
            if found is None:
                continue
            tree = opened(damaged)
            count, changed = found
            assert at >= header_of(data).end + tree.upper_bytes, "the upper levels have a CRC"
            assert count == len(changed) == len(entries)
            keys = [order_key(key) for key, _ in changed]
            assert keys == sorted(keys)
            for key in {key for key, _ in changed}:
                assert repr(tree.get(key)) == repr([value for other, value in changed if other == key])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_at_every_length_is_refused(shape: str, codec: str) -> None:
    schema, entries, options = SHAPES[shape]
    data = write(schema, entries, codec=codec, **options)
    for length in positions(range(len(data))):
        assert _try(len(data), lambda length=length: opened(data[:length])) is None  # type: ignore[misc]
    assert _try(len(data) + 1, lambda: opened(data + b"\0")) is None


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_after_the_file_was_opened_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.FIRST_READ_BYTES", 64)
    for length in positions(range(header_of(FILES[codec]).end, len(FILES[codec]))):
        file = Bytes(FILES[codec])
        tree = BTreeReader(file)
        file.data = FILES[codec][:length]
        with pytest.raises(DamagedIndexFile):
            list(tree.scan())


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


PLAIN = {"deflate": _deflate, "zstandard": lambda data: pa.Codec("zstd").compress(data, asbytes=True)}


@pytest.mark.parametrize("codec", CHECKSUMS)
def test_checksums_that_the_header_promises_must_be_there(codec: str) -> None:
    """Blocks of other writers are only read if the header promises no checksums."""
    block = fmt.encode_block(1, PLAIN[codec](_record("a", 0, None)), SYNC)
    extra = {fmt.CODEC_KEY: codec.encode(), fmt.ENTRIES_KEY: b"1"}
    assert opened(_rebuilt([block], extra)).check() == 1
    with pytest.raises(DamagedIndexFile, match=r"CRC|checksum"):
        opened(_rebuilt([block], {**extra, fmt.CHECKSUM_KEY: CHECKSUMS[codec]})).check()


def _rebuilt(blocks: list[bytes], extra: dict[str, bytes] | None = None) -> bytes:
    """A file with our header and other blocks."""
    metadata = {**header_of(FILES["null"]).metadata, fmt.DATA_BYTES_KEY: str(sum(map(len, blocks))).encode()}
    metadata[fmt.UPPER_BYTES_KEY] = b"0"
    metadata[fmt.SPLIT_RUNS_KEY] = b"1"
    del metadata[fmt.UPPER_CRC_KEY]
    return b"".join([fmt.encode_header(fmt.sealed({**metadata, **(extra or {})}, SYNC), SYNC), *blocks])


def _record(key: str, row: int, link: int | None) -> bytes:
    text = encode_signed(len(key)) + key.encode()
    value = b"\x02\x02f\x02" + encode_signed(row)
    return b"\x02" + text + value + (fmt.NULL_LINK if link is None else fmt.LINK_BRANCH + encode_signed(link))


def _block(*records: tuple[str, int, int | None]) -> bytes:
    return fmt.encode_block(len(records), b"".join(_record(*record) for record in records), SYNC)


LEAF = _block(("b", 1, None))
MANY = 3000


def _chain(is_gnomon_file: bool = True) -> bytes:
    """A tree whose depth is its number of nodes: each node holds one record, all of one key."""
    blocks: list[bytes] = [_block(("a", 0, None))]
    length = len(blocks[0])
    for _ in range(MANY):
        blocks.append(_block(("a", 0, length)))
        length += len(blocks[-1])
    data = _rebuilt(blocks[::-1], {fmt.ENTRIES_KEY: str(MANY + 1).encode()})
    return data if is_gnomon_file else as_dione(data)


def _lattice(levels: int = 60) -> bytes:
    """Both records of each node link to one child: 2 ** 60 paths."""
    blocks = [_block(("a", 0, None), ("a", 0, None))]
    length = len(blocks[0])
    for _ in range(levels):
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
    "a link to the root": (_two_levels(len(LEAF) + 37), "does not point to a block"),
    "a link of 0": (_two_levels(0), "does not point to a block"),
    "a negative link": (_two_levels(-5), "does not point to a block"),
    "a link before the file": (_two_levels(10**9), "does not point to a block"),
    "a link into a block": (_two_levels(len(LEAF) - 1), "records and|decoded|sync"),
    "a child below its parent's record": (_two_levels(len(LEAF), _block(("A", 1, None))), "interval"),
    "a child above the next record": (_two_levels(len(LEAF), _block(("d", 1, None))), "interval"),
    "an unsorted node": (_rebuilt([_block(("b", 0, None), ("a", 0, None))]), "not in order"),
    "a block no link reaches": (_two_levels(len(LEAF), between=LEAF), "no link reaches"),
    "other bytes between blocks": (_two_levels(len(LEAF), between=b"\0" * 5), "no link reaches"),
    "another number of entries": (_rebuilt([LEAF]), "expected 12 entries, found 1"),
    "a count of records that is too small": (
        _rebuilt([fmt.encode_block(1, _record("a", 0, None) * 2, SYNC)]),
        "decoded",
    ),
    "a count of records that is too large": (_rebuilt([fmt.encode_block(9, _record("a", 0, None), SYNC)]), "decoded"),
    "a huge count of records": (_rebuilt([fmt.encode_block(2**60, _record("a", 0, None), SYNC)]), "expected a block"),
    "text that is not UTF-8": (_rebuilt([_block(("a", 0, None)).replace(b"\x02f", b"\x02\xff")]), "UTF-8"),
    "a text as long as memory": (
        _rebuilt([fmt.encode_block(1, b"\x02" + encode_signed(2**62) + b"a" * 9, SYNC)]),
        "decoded",
    ),
    "a text of negative length": (
        _rebuilt([fmt.encode_block(1, b"\x02" + encode_signed(-9) + b"a" * 9, SYNC)]),
        "decoded",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_check_refuses(name: str) -> None:
    data, message = BROKEN[name]
    with pytest.raises(DamagedIndexFile, match=message) as error:
        opened(data).check()
    assert 0 <= error.value.offset <= len(data)


def test_damage_is_named_by_file_and_block_where_files_are_decoded_together() -> None:
    other = Bytes(BROKEN["text that is not UTF-8"][0])
    other.name = "damaged.avro"
    sound, damaged = opened(_rebuilt([LEAF])), BTreeReader(other)
    names = [column.name for column in sound.schema.columns]
    parts = [(tree, list(tree.runs(None, None, False, LookupStats()))) for tree in (sound, damaged, sound)]
    assert decoded([parts[0], parts[2]], names)[0].to_pylist() == ["b", "b"]
    with pytest.raises(DamagedIndexFile, match="UTF-8") as error:
        decoded(parts, names)
    assert (error.value.path, error.value.offset) == ("damaged.avro", parts[1][1][0].offset)


def test_a_leaf_in_the_place_of_the_root_is_refused() -> None:
    """Each block is sound, and the root has no parent that bounds its keys."""
    schema, entries, options = SHAPES["three levels"]
    data = write(schema, entries, codec="snappy", **options)
    start, last = header_of(data).end, _block_starts(data)[-1]
    moved = data[:start] + data[last:] + data[start + len(data) - last :]
    with pytest.raises(DamagedIndexFile, match="above the leaves"):
        opened(moved)


def test_a_run_that_the_header_says_is_whole_may_not_be_split() -> None:
    leaf = _block(("c", 1, None))
    blocks = [_block(("a", 0, len(leaf)), ("c", 2, None)), leaf]
    assert len(opened(_rebuilt(blocks)).get(("c",))) == 2
    tree = opened(_rebuilt(blocks, {fmt.SPLIT_RUNS_KEY: b"0"}))
    with pytest.raises(DamagedIndexFile, match="interval"):
        tree.get(("b",))


def test_bounds_are_inherited_from_the_levels_above() -> None:
    """A node below the last record of its parent ends before the record after the parent."""
    leaf = _block(("z", 3, None))
    inner = _block(("b", 1, len(leaf)))
    root = _block(("a", 0, len(leaf) + len(inner)), ("c", 2, None))
    with pytest.raises(DamagedIndexFile, match="interval"):
        opened(_rebuilt([root, inner, leaf], {fmt.ENTRIES_KEY: b"4"})).get(("b",))


def _one_key(data: bytes, key: Key, is_get: bool) -> object:
    """The answer for one key from a file just opened and again from memory, with its cost, or the error."""
    try:
        tree, found = opened(data), []
        for visits in (None, list[Visit](), None):
            stats = LookupStats(visits=visits)
            answer = tree.get_many([key], stats) if is_get else tree.contains_many([key], stats)
            nodes = [(visit.offset, visit.level, visit.records, visit.reads) for visit in visits or []]
            found.append((answer, stats.nodes, stats.reads, stats.bytes, nodes))
    except DamagedIndexFile as error:
        return str(error)
    return found


@pytest.mark.parametrize("is_get", [True, False])
def test_the_path_to_one_key_is_refused_or_answers_as_the_general_way(
    is_get: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes on the path to one key are checked by compiled code, and other nodes by the general way."""
    files = [(data, [("a",), ("b",), ("bb",), ("c",), ("d",), ("A",)]) for data, _ in BROKEN.values()]
    files += [(_two_levels(len(LEAF)), [("a",), ("b",), ("bb",), ("c",), ("d",), ("A",)])]
    files += [(_lattice(), [("a",), ("b",)]), (_chain()[:-1], [("a",)]), (_chain(), [("a",), ("b",)])]
    leaf = _block(("z", 3, None))
    inner = _block(("b", 1, len(leaf)))
    root = _block(("a", 0, len(leaf) + len(inner)), ("c", 2, None))
    files += [(_rebuilt([root, inner, leaf], {fmt.ENTRIES_KEY: b"4"}), [("b",), ("bb",), ("z",)])]
    for whole in (b"0", b"1"):
        for last in "bcd":
            leaf = _block(("b", 1, None), (last, 1, None))
            blocks = [_block(("a", 0, len(leaf)), ("c", 2, None)), leaf]
            files += [(_rebuilt(blocks, {fmt.SPLIT_RUNS_KEY: whole}), [("a",), ("b",), ("bb",), ("c",)])]
    for schema, entries, options in SHAPES.values():
        data = write(schema, entries, codec="null", **options)
        inside = [at for payload in _payloads(data) for at in payload]
        flips = [damaged for at in positions(inside) for damaged in _flipped(data, at)]
        files += [(one, [key for key, _ in entries[:: len(entries) // 3 + 1]]) for one in (data, *flips)]
    asked = [(data, key) for data, keys in files for key in keys]
    found = [_one_key(data, key, is_get) for data, key in asked]
    monkeypatch.setattr(BTreeReader, "_descend", lambda *_: None)
    assert [repr(one) for one in found] == [repr(_one_key(data, key, is_get)) for data, key in asked]
    refused = [one for one in found if isinstance(one, str)]
    assert len(refused) > 20
    assert any("interval" in one for one in refused)
    assert any("does not point" in one for one in refused)


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
    "checksum": {fmt.CHECKSUM_KEY: b"crc32"},
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_makes_no_sense_is_refused_at_opening(name: str) -> None:
    sound = header_of(FILES["null"])
    metadata = fmt.sealed({**sound.metadata, **HEADERS[name]}, SYNC)
    data = fmt.encode_header(metadata, SYNC) + FILES["null"][sound.end :]
    with pytest.raises(DamagedIndexFile) as error:
        opened(data)
    assert error.value.path == NAME


def test_a_plain_avro_file_is_no_index_file() -> None:
    metadata = dict(header_of(FILES["null"]).metadata)
    del metadata[fmt.DATA_BYTES_KEY]
    with pytest.raises(DamagedIndexFile, match="data_bytes is missing"):
        opened(fmt.encode_header(fmt.sealed(metadata, SYNC), SYNC))


def test_a_header_of_ours_has_its_crc() -> None:
    metadata = dict(header_of(FILES["null"]).metadata)
    del metadata[fmt.HEADER_CRC_KEY]
    with pytest.raises(DamagedIndexFile, match="header_crc32"):
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
    file = Bytes(fmt.MAGIC + encode_signed(1) + encode_signed(60_000) + b"x" * (1 << 20))
    with pytest.raises(DamagedIndexFile, match="expected a header"):
        BTreeReader(file)
    assert sum(length for _, length in file.reads) <= 1 << 17


def test_a_header_above_the_limit_is_refused_however_much_is_read_at_first() -> None:
    value = b"x" * fmt.HEADER_LIMIT
    header = fmt.encode_header({**header_of(FILES["null"]).metadata, "note": value}, SYNC)
    for head_bytes in (None, 4 * fmt.HEADER_LIMIT):
        with pytest.raises(DamagedIndexFile, match="header"):
            BTreeReader(Bytes(header), head_bytes=head_bytes)


@pytest.mark.parametrize("ask", [lambda t: t.get((9**9,)), lambda t: list(t.scan()), lambda t: t.check()])
def test_nodes_above_one_another_take_bounded_memory(
    ask: Callable[[BTreeReader], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, entries, options = SHAPES["three levels"]
    data = write(schema, entries, **options)
    ask(opened(data))
    monkeypatch.setattr("gnomon.btree.traversal.HELD_BYTES", 200)
    with pytest.raises(DamagedIndexFile, match="nested nodes"):
        ask(opened(data))


def test_a_length_of_nodes_that_is_none_harms_no_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.btree.blocks.LONGEST_GUESS_BYTES", 1)
    monkeypatch.setattr("gnomon.btree.blocks.FIRST_READ_BYTES", 64)
    entries = url_entries(300)
    assert opened(write(URL_SCHEMA, entries, node_bytes=400)).check() == len(entries)


def test_upper_levels_too_large_for_memory_are_proved_by_check(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = url_entries(3000)
    data = write(URL_SCHEMA, entries, node_bytes=400, codec="null")
    at = data.index(b"parquet", header_of(data).end)
    damaged = data[:at] + b"PARQUET" + data[at + 7 :]
    monkeypatch.setattr("gnomon.btree.blocks.UPPER_READ_BYTES", 100)
    monkeypatch.setattr("gnomon.btree.blocks.LONG_READ_BYTES", 1000)
    assert opened(data).check() == len(entries)
    with pytest.raises(DamagedIndexFile, match="upper_crc32"):
        opened(damaged).check()
