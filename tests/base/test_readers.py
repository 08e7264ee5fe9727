"""Bytes as a reader, a reader with bytes in memory, and a reader as a binary file."""

import io

import pytest

from gnomon.base.readers import MemoryFile, PrefetchedReader, RangeFile
from tests.sources.readers import BytesReader

DATA = bytes(range(100))


def test_bytes_are_a_reader() -> None:
    file = MemoryFile(DATA, "lake/x")
    assert (file.name, file.size, file.is_remote) == ("lake/x", 100, False)
    assert file.read_ranges([(90, 3), (0, 2)]) == [DATA[90:93], DATA[:2]]


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_reader_with_bytes_in_memory_is_otherwise_the_same(is_remote: bool) -> None:
    reader = BytesReader(DATA, "lake/x")
    reader.is_remote = is_remote
    held = PrefetchedReader(reader, 40, DATA[40:60])
    assert (held.name, held.size, held.is_remote) == ("lake/x", 100, is_remote)


def test_ranges_held_in_memory_cost_no_read() -> None:
    reader = BytesReader(DATA)
    held = PrefetchedReader(reader, 40, DATA[40:60])
    assert held.read_ranges([(40, 20), (45, 2)]) == [DATA[40:60], DATA[45:47]]
    assert reader.rounds == 0
    assert held.read_ranges([(0, 3), (59, 1), (59, 2), (39, 1)]) == [DATA[:3], DATA[59:60], DATA[59:61], DATA[39:40]]
    assert (reader.rounds, reader.reads) == (1, [(0, 3), (59, 2), (39, 1)])
    assert held.read_range(50, 1) == DATA[50:51]


@pytest.mark.parametrize("tail", [b"", b"tail!"])
def test_a_range_file_reads_like_the_bytes_with_the_tail_behind_them(tail: bytes) -> None:
    file, model = RangeFile(BytesReader(DATA), tail), io.BytesIO(DATA + tail)
    for offset in (0, 50, 97, 99, 100, 103, 105, 110):
        for length in (0, 1, 4, 60, -1):
            assert file.seek(offset) == model.seek(offset)
            assert file.read(length) == model.read(length)
            assert file.tell() == model.tell()
    assert file.seek(-5, io.SEEK_END) == model.seek(-5, io.SEEK_END)
    assert file.seek(2, io.SEEK_CUR) == model.seek(2, io.SEEK_CUR)
    assert file.read() == model.read()


def test_a_range_file_asks_the_reader_for_nothing_it_holds_itself() -> None:
    reader = BytesReader(DATA)
    with RangeFile(reader, b"footer") as file:
        file.seek(100)
        assert file.read() == b"footer"
        file.seek(98)
        assert file.read(4) == DATA[98:] + b"fo"
    assert reader.reads == [(98, 2)]


def test_a_range_file_keeps_what_the_reader_raised() -> None:
    class Failing(BytesReader):
        def read_range(self, offset: int, length: int) -> bytes:
            raise TimeoutError("slow store")

    file = RangeFile(Failing(DATA))
    with pytest.raises(TimeoutError):
        file.read(1)
    assert isinstance(file.failure, TimeoutError)
