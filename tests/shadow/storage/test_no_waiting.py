"""shadow/storage/waiting.py: work that must not wait reads what the system has in memory, or says that it would."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gnomon.shadow.storage import (
    Begun,
    LocalStorage,
    WouldWait,
    in_order,
    may_wait,
    storage_at,
    waiting,
    without_waiting,
)
from tests.stores.process import CACHE

DATA = bytes(range(256)) * 1000


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A folder with a file that was read before."""
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "f").write_bytes(DATA)
    with storage.open("f") as file:
        file.read_range(0, len(DATA))
    try:
        with without_waiting(1), storage.open("f") as file:
            file.read_range(0, 1)
    except WouldWait:
        pytest.skip("this system cannot read a file without a wait")
    return storage


def test_ranges_are_read_as_with_a_wait(storage: LocalStorage) -> None:
    ranges = [(0, 10), (255_990, 10), (777, 4096), (5, 0)]
    with storage.open("f") as file:
        expected = file.read_ranges(ranges)
    with without_waiting(len(DATA)), storage.open("f") as file:
        assert file.read_ranges(ranges) == expected


def test_more_bytes_than_allowed_are_not_read(storage: LocalStorage) -> None:
    with without_waiting(100), storage.open("f") as file:
        assert file.read_range(0, 60) == DATA[:60]
        with pytest.raises(WouldWait):
            file.read_range(60, 41)
    with storage.open("f") as file:
        assert len(file.read_range(0, 1000)) == 1000


@pytest.mark.parametrize("error", [BlockingIOError(11, "again"), OSError(95, "not supported")])
def test_bytes_that_are_not_in_memory_are_not_waited_for(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "preadv", refuse)
    monkeypatch.setattr(waiting._shared, "_devices", dict.fromkeys(waiting._shared._devices, 0xEF53))
    with without_waiting(1000), storage.open("f") as file, pytest.raises(WouldWait):
        file.read_range(0, 10)


def test_a_file_that_the_system_dropped_from_memory_is_not_waited_for() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    far = 90 * len(DATA)  # beyond what the system reads ahead after the first read
    with TemporaryDirectory(dir=CACHE) as folder:  # on a disk, where `tmp_path` may be in memory
        storage = LocalStorage(folder)
        storage.put_new("f", [DATA] * 100)
        with storage.open("f") as file:
            os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                os.preadv(file._fd, [bytearray(10)], 0, os.RWF_NOWAIT)
                pytest.skip("the system keeps the file in memory")
            except BlockingIOError:
                pass
            except (OSError, AttributeError):
                pytest.skip("this system cannot read a file without a wait")
            with without_waiting(1000), pytest.raises(WouldWait):
                file.read_range(far, 10)
            assert file.read_range(far, 10) == DATA[:10]
            with without_waiting(1000):
                assert file.read_range(far, 10) == DATA[:10]


def test_an_end_of_a_file_before_the_end_of_a_range_is_left_to_who_may_wait(storage: LocalStorage) -> None:
    with without_waiting(1000), storage.open("f") as file, pytest.raises(WouldWait):
        file.read_range(len(DATA) - 5, 10)


@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.open("missing"),
        lambda storage: storage.open("."),
        lambda storage: storage.read("f"),
        lambda storage: list(storage.list()),
        lambda storage: storage.put_new("g", [b"x"]),
        lambda storage: storage.move_new("f", "g"),
        lambda storage: storage.delete("f"),
        lambda _: storage_at("memory://no-waiting").read("f"),
        lambda _: Begun(lambda: 1),
        lambda _: list(in_order([lambda: 1, lambda: 2])),
    ],
)
def test_calls_that_may_wait_are_not_made(storage: LocalStorage, call: Callable[[LocalStorage], object]) -> None:
    with without_waiting(1000), pytest.raises(WouldWait):
        call(storage)
    assert sorted(info.path for info in storage.list()) == ["f"]


def test_a_file_of_another_file_system_is_not_opened(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting._shared, "_devices", {})  # as NFS, CIFS and FUSE are not told of
    with without_waiting(1000), pytest.raises(WouldWait):
        storage.open("f")


def test_the_caller_may_wait_again_after_an_error(storage: LocalStorage) -> None:
    with without_waiting(0):
        assert not may_wait()
        with pytest.raises(WouldWait):
            storage.read("f")
    assert may_wait()
    assert storage.read("f") == DATA
