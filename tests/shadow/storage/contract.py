"""The contract of every store. A test module makes a subclass whose `storage` fixture returns an empty root."""

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError
from gnomon.shadow.storage import FileInfo, ReadStats, Storage
from gnomon.shadow.storage.contract import ANY_TIME, difference

RACERS = 8
ROOT = Path(__file__).parents[3]

FORKED = """
import os, pickle, sys
storage = pickle.loads(bytes.fromhex(sys.argv[1]))
if sys.argv[2] == "used before":
    storage.read("before")
child = os.fork()
if not child:
    try:
        storage.put_new("by the child", [storage.read("before")])
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent:", bytes(storage.read("before")).decode(), flush=True)
"""


def race(racers: int, enter: Callable[[int], None]) -> list[int]:
    """Let threads do the same thing at the same time. Returns the threads that did not find the name taken."""
    start, won = threading.Barrier(racers), []

    def run(racer: int) -> None:
        start.wait()
        try:
            enter(racer)
            won.append(racer)
        except AlreadyExists:
            pass

    threads = [threading.Thread(target=run, args=(racer,)) for racer in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


class ReadingContract:
    """Files are read by exact ranges, and as they were opened or not at all. A subclass says how files come there."""

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError

    def put(self, storage: Storage, path: str, data: bytes = b"x") -> None:
        raise NotImplementedError

    def remove(self, storage: Storage, path: str) -> None:
        raise NotImplementedError

    def known(self, storage: Storage, path: str) -> FileInfo:
        """The current state of a file, as an index records it."""
        raise NotImplementedError

    def test_a_range_is_exact(self, storage: Storage) -> None:
        self.put(storage, "f", bytes(range(100)))
        stats = ReadStats()
        with storage.open("f", stats) as file:
            assert (file.size, file.name) == (100, f"{storage.root}/f")
            assert file.read_range(10, 5) == bytes(range(10, 15))
            assert file.read_range(0, 100) == bytes(range(100))
            assert file.read_range(99, 1) == b"c"
            assert (stats.reads, stats.bytes) == (3, 106)
            assert file.read_range(100, 0) == file.read_range(0, 0) == b""
            wanted = [(90, 10), (0, 1), (5, 0), (0, 3), (2, 3), (90, 10)]
            assert file.read_ranges(wanted) == [bytes(range(start, start + n)) for start, n in wanted]
            assert file.read_ranges([]) == []

    def test_ranges_far_apart_are_exact(self, storage: Storage) -> None:
        data = bytes(range(256)) * 4096 * 3
        self.put(storage, "f", data)
        wanted = [(len(data) - 5, 5), (0, 7), (1 << 20, 200_000), (1_000, 1_000), ((1 << 20) + 200_001, 9)]
        with storage.open("f") as file:
            assert file.read_ranges(wanted) == [data[start : start + n] for start, n in wanted]

    def test_an_empty_file_has_no_bytes(self, storage: Storage) -> None:
        self.put(storage, "f", b"")
        with storage.open("f") as file:
            assert (file.size, file.read_ranges([(0, 0)])) == (0, [b""])
            with pytest.raises(StorageError, match="expected 1 bytes at 0, the file ends at 0"):
                file.read_range(0, 1)

    def test_a_range_beyond_the_end_names_path_and_offset(self, storage: Storage) -> None:
        self.put(storage, "f", b"12345")
        with storage.open("f") as file:
            with pytest.raises(StorageError, match=r"/f: expected 4 bytes at 3, the file ends at 5"):
                file.read_range(3, 4)
            with pytest.raises(StorageError, match="expected 1 bytes at 9"):
                file.read_range(9, 1)

    def test_threads_share_an_open_file(self, storage: Storage) -> None:
        self.put(storage, "f", bytes(range(256)) * 100)
        found: set[bytes] = set()
        with storage.open("f") as file:

            def read(offset: int) -> None:
                found.update(file.read_range(offset, 3) for _ in range(200))

            threads = [threading.Thread(target=read, args=(offset,)) for offset in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found == {bytes([offset, offset + 1, offset + 2]) for offset in range(4)}

    def test_a_missing_file_is_said_to_be_missing(self, storage: Storage) -> None:
        self.put(storage, "folder/file")
        with pytest.raises(FileNotFoundError):
            storage.open("nowhere")
        with pytest.raises(FileNotFoundError):
            storage.read("folder/nowhere")
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            storage.read("folder/file/below")
        with pytest.raises((FileNotFoundError, IsADirectoryError)):
            storage.open("folder")

    def test_an_open_file_is_read_as_it_was_opened_or_not_at_all(self, storage: Storage) -> None:
        self.put(storage, "f", b"old")
        with storage.open("f") as file:
            assert file.read_range(0, 3) == b"old"
            self.rewrite(storage, "f", b"new")
            self.reads_only(b"old", lambda: file.read_range(0, 3))
            self.remove(storage, "f")
            self.reads_only(b"old", lambda: file.read_range(0, 3))

    def rewrite(self, storage: Storage, path: str, data: bytes) -> None:
        """Replace a file by another with a different fingerprint, even if the clock does not advance."""
        before = self.known(storage, path)
        after = before
        while not difference(before, after):
            self.remove(storage, path)
            self.put(storage, path, data)
            after = self.known(storage, path)

    def reads_only(self, expected: bytes, read: Callable[[], bytes]) -> None:
        with contextlib.suppress(FileChanged, FileNotFoundError):
            assert read() == expected

    def test_a_file_on_record_is_opened_and_another_one_is_not(self, storage: Storage) -> None:
        self.put(storage, "p/f", b"old")
        known = self.known(storage, "p/f")
        with storage.open("p/f", known=known) as file:
            assert difference(known, file) == ""
            assert (file.name, file.read_ranges([(0, 1), (2, 1)])) == (f"{storage.root}/p/f", [b"o", b"d"])

        def read(known: FileInfo) -> bytes:
            with storage.open("p/f", known=known) as file:
                return file.read_range(0, 1)

        with pytest.raises(FileChanged, match=r"p/f: the file changed \(then 4 bytes, now 3\)"):
            read(known._replace(size=4, etag="", mtime_ns=ANY_TIME))
        assert read(known._replace(etag="", mtime_ns=ANY_TIME)) == b"o"
        self.rewrite(storage, "p/f", b"new")
        with pytest.raises(FileChanged, match=r"p/f: the file changed \(its (time|etag) differs\)"):
            read(known)
        self.remove(storage, "p/f")
        with pytest.raises(FileNotFoundError, match="p/f"):
            read(known)

    def test_a_file_on_record_that_is_shorter_by_now_is_another_one(self, storage: Storage) -> None:
        self.put(storage, "f", b"0123456789")
        known = self.known(storage, "f")
        self.remove(storage, "f")
        self.put(storage, "f", b"0123")
        for on_record in (known, known._replace(etag="", mtime_ns=ANY_TIME)):
            with pytest.raises(FileChanged), storage.open("f", known=on_record) as file:
                file.read_range(8, 2)


class StorageContract(ReadingContract):
    """Files are put whole, create-only, and read by exact ranges. A store refuses names that it cannot hold in one
    line."""

    many = 10_000  # files of one listing
    refused: tuple[str, ...] = ()  # names that this store cannot hold

    def put(self, storage: Storage, path: str, data: bytes = b"x") -> None:
        storage.put_new(path, [data])

    def remove(self, storage: Storage, path: str) -> None:
        storage.delete(path)

    def known(self, storage: Storage, path: str) -> FileInfo:
        [found] = [info for info in storage.list() if info.path == path]
        return found

    def names(self, storage: Storage, prefix: str = "", hidden: bool = False) -> list[str]:
        return [info.path for info in storage.list(prefix, hidden)]

    def test_what_is_put_is_read_back_chunk_after_chunk(self, storage: Storage) -> None:
        storage.put_new("a/b/c", [b"one", b"", b"two"])
        assert storage.read("a/b/c") == b"onetwo"

    def test_an_empty_file_is_a_file(self, storage: Storage) -> None:
        storage.put_new("empty", [])
        assert storage.read("empty") == b""
        assert [info.size for info in storage.list()] == [0]

    def test_a_taken_name_is_refused_and_its_file_kept(self, storage: Storage) -> None:
        self.put(storage, "a", b"first")
        with pytest.raises(AlreadyExists, match="a: the name is taken"):
            self.put(storage, "a", b"second")
        assert storage.read("a") == b"first"
        assert self.names(storage, hidden=True) == ["a"]

    def test_of_racing_puts_one_wins_and_the_others_know(self, storage: Storage) -> None:
        for name in ("f/name", "f/next", "g"):
            won = race(RACERS, lambda racer, name=name: storage.put_new(name, [bytes([racer]) * 10_000]))  # type: ignore[misc]
            assert len(won) == 1
            assert storage.read(name) == bytes(won) * 10_000
        assert self.names(storage, hidden=True) == ["f/name", "f/next", "g"]

    def test_a_put_that_fails_midway_leaves_nothing(self, storage: Storage) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"half"
            raise RuntimeError("the disk is full")

        with pytest.raises(RuntimeError, match="disk is full"):
            storage.put_new("f/name", chunks())
        assert self.names(storage, hidden=True) == []
        self.put(storage, "f/name", b"whole")
        assert storage.read("f/name") == b"whole"

    def test_nobody_sees_a_file_before_it_is_whole(self, storage: Storage) -> None:
        seen: list[list[str]] = []

        def chunks() -> Iterable[bytes]:
            for _ in range(3):
                seen.append(self.names(storage, "f"))
                yield b"part"

        storage.put_new("f/name", chunks())
        assert seen == [[], [], []]

    def test_a_listing_is_ordered_by_path_as_a_whole(self, storage: Storage) -> None:
        paths = ["a", "a.txt", "a0/x", "b/c/d", "b/c.txt", "b-1/x", "é/x", "ab", "Z/x", "p=1/x", "p=10/x", "p/x"]
        for path in paths:
            self.put(storage, path)
        assert self.names(storage) == sorted(paths)

    def test_a_listing_gives_paths_below_the_root_and_sizes(self, storage: Storage) -> None:
        self.put(storage, "a/b", b"12345")
        self.put(storage, "ab/c")
        assert [(info.path, info.size) for info in storage.list("a")] == [("a/b", 5)]
        assert all(info.mtime_ns > 0 for info in storage.list())

    def test_a_listing_of_what_is_not_there_is_empty(self, storage: Storage) -> None:
        self.put(storage, "file")
        assert self.names(storage, "nowhere") == []
        assert self.names(storage, "file/below") == []

    def test_hidden_names_are_listed_on_request_only(self, storage: Storage) -> None:
        hidden = ["_SUCCESS", ".x.crc", "_shadow/spec.json", ".git/x", "p=1/_x", "p=1/.x", "y._COPYING_"]
        shown = ["p=1/x", "x_y", "_p=1/x"]
        for path in hidden + shown:
            self.put(storage, path)
        assert self.names(storage) == sorted(shown)
        assert self.names(storage, hidden=True) == sorted(hidden + shown)
        assert self.names(storage, "_shadow") == ["_shadow/spec.json"]

    @pytest.mark.parametrize(
        "path",
        [
            "p=a%2Fb/x y",
            "p=ü/日本",
            "p=a=b/a+b",
            "p=1/[x]{y}*?",
            "p/#;&+'\"",
            "p/100%",
            "p/%25",
            "p/~!$(),@^`|<>",
            "p=a:b/12:30:00",
            "p=\\/x",
            "p=\n/x",
            "p= /x ",
            "p/" + "n" * 200,
        ],
    )
    def test_names_may_hold_any_character(self, storage: Storage, path: str) -> None:
        if path in self.refused:
            with pytest.raises(StorageError) as caught:
                self.put(storage, path)
            assert "\n" not in str(caught.value).replace(path, "")
            assert self.names(storage, hidden=True) == []
            return
        self.put(storage, path, b"data")
        assert self.names(storage) == [path]
        assert storage.read(path) == b"data"
        with storage.open(path) as file:
            assert file.read_range(1, 2) == b"at"
        storage.move_new(path, path + "2")
        storage.delete(path + "2")
        assert self.names(storage, hidden=True) == []

    @pytest.mark.slow
    def test_many_files_are_listed_all(self, storage: Storage) -> None:
        paths = [f"p={int(i % 7 == 0)}/{i:05d}" for i in range(self.many)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda path: self.put(storage, path), paths))
        assert self.names(storage) == sorted(paths)
        storage.delete_folder("p=1")
        assert self.names(storage) == sorted(path for path in paths if not path.startswith("p=1/"))

    def test_a_name_is_a_file_or_a_folder(self, storage: Storage) -> None:
        """On a store without folders it may be both. No file is lost in either case."""
        self.put(storage, "a", b"file")
        try:
            self.put(storage, "a/b", b"below")
            assert storage.read("a/b") == b"below"
        except (StorageError, NotADirectoryError):
            pass
        assert storage.read("a") == b"file"
        self.put(storage, "c/d", b"below")
        try:
            self.put(storage, "c", b"file")
            assert storage.read("c") == b"file"
        except StorageError:
            pass
        assert storage.read("c/d") == b"below"
        assert set(self.names(storage, hidden=True)) <= {"a", "a/b", "c", "c/d"}

    def test_the_root_itself_is_a_folder(self, storage: Storage) -> None:
        with pytest.raises(FileNotFoundError):
            storage.open("")
        self.put(storage, "f")
        with pytest.raises(IsADirectoryError):
            storage.open("")

    def test_move_new_gives_a_file_its_name_and_takes_the_old_one(self, storage: Storage) -> None:
        self.put(storage, "_staged/x", b"data")
        storage.move_new("_staged/x", "p=1/y")
        assert self.names(storage, hidden=True) == ["p=1/y"]
        assert storage.read("p=1/y") == b"data"

    def test_move_new_refuses_a_taken_name_and_keeps_both(self, storage: Storage) -> None:
        self.put(storage, "from", b"new")
        self.put(storage, "to", b"old")
        with pytest.raises(AlreadyExists, match="to: the name is taken"):
            storage.move_new("from", "to")
        assert (storage.read("from"), storage.read("to")) == (b"new", b"old")

    def test_of_racing_moves_one_wins_and_the_others_keep_their_file(self, storage: Storage) -> None:
        for racer in range(RACERS):
            self.put(storage, f"from/{racer}", bytes([racer]))
        won = race(RACERS, lambda racer: storage.move_new(f"from/{racer}", "to/name"))
        assert len(won) == 1
        assert storage.read("to/name") == bytes(won)
        assert self.names(storage, "from") == [f"from/{racer}" for racer in range(RACERS) if racer not in won]

    def test_racers_may_move_one_file_to_one_name(self, storage: Storage) -> None:
        for turn in range(5):
            self.put(storage, f"from/{turn}", b"data")
            told: list[Exception] = []

            def move(_racer: int, turn: int = turn, told: list[Exception] = told) -> None:
                try:
                    storage.move_new(f"from/{turn}", f"to/{turn}")
                except (AlreadyExists, FileNotFoundError) as error:
                    told.append(error)
                    raise AlreadyExists("another racer was first") from error

            won = race(RACERS, move)
            assert won
            assert len(won) + len(told) == RACERS
            assert storage.read(f"to/{turn}") == b"data"
        assert self.names(storage, "to") == [f"to/{turn}" for turn in range(5)]

    def test_a_file_that_is_not_there_cannot_be_moved(self, storage: Storage) -> None:
        with pytest.raises(FileNotFoundError):
            storage.move_new("nowhere", "to")
        assert self.names(storage, hidden=True) == []

    def test_what_is_gone_can_be_deleted_again(self, storage: Storage) -> None:
        self.put(storage, "a/b")
        storage.delete("a/b")
        storage.delete("a/b")
        storage.delete("x/y")
        assert self.names(storage, hidden=True) == []

    def test_delete_folder_takes_all_that_is_in_it_and_nothing_beside_it(self, storage: Storage) -> None:
        for path in ("a/b", "a/_c/d", "ab", "a.b/c"):
            self.put(storage, path)
        storage.delete_folder("a")
        storage.delete_folder("a")
        assert self.names(storage, hidden=True) == ["a.b/c", "ab"]

    def test_delete_empty_takes_no_folder_that_holds_something(self, storage: Storage) -> None:
        self.put(storage, "a/b/c")
        for path in ("a", "a/b", "a/b/c", "nowhere", "nowhere/x"):
            storage.delete_empty(path)
        assert self.names(storage, hidden=True) == ["a/b/c"]
        storage.delete("a/b/c")
        storage.delete_empty("a")
        self.put(storage, "a", b"a file by now")
        assert storage.read("a") == b"a file by now"


class PickledStorageContract(StorageContract):
    """In addition, a storage can be pickled, and the copy is the same place."""

    def test_a_pickled_storage_is_the_same_place(self, storage: Storage) -> None:
        self.put(storage, "f", b"data")
        again: Storage = pickle.loads(pickle.dumps(storage))
        assert (again.root, again.read("f")) == (storage.root, b"data")


class SharedStorageContract(PickledStorageContract):
    """In addition, other processes see the same files."""

    forks_apart = False  # whether the child of a process that used the store cannot use it after a fork

    @pytest.mark.process
    @pytest.mark.parametrize("before", ["not used before", "used before"])
    def test_a_forked_process_uses_the_store_or_is_told_that_it_cannot(self, storage: Storage, before: str) -> None:
        self.put(storage, "before", b"data")
        command = [sys.executable, "-c", FORKED, pickle.dumps(storage).hex(), before]
        done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
        if before == "used before" and self.forks_apart:
            assert "StorageError" in done.stdout
            assert "this process was forked from one that had used an object store" in done.stdout
        else:
            assert storage.read("by the child") == b"data"
        assert done.stdout.endswith("parent: data\n")
