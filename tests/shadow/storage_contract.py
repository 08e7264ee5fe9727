"""What every store must do. A test module makes a subclass whose `storage` fixture gives an empty root."""

import threading
from collections.abc import Iterable, Iterator

import pytest

from shadow.errors import AlreadyExists, StorageError
from shadow.storage import ReadStats, Storage

RACERS = 8


class StorageContract:
    """Files are put whole, create-only, and read by exact ranges."""

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError

    def put(self, storage: Storage, path: str, data: bytes = b"x") -> None:
        storage.put_new(path, [data])

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
        start, won = threading.Barrier(RACERS), []

        def race(racer: int) -> None:
            start.wait()
            try:
                storage.put_new("f/name", [bytes([racer]) * 10_000])
                won.append(racer)
            except AlreadyExists:
                pass

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read("f/name") == bytes(won) * 10_000
        assert self.names(storage, hidden=True) == ["f/name"]

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

    def test_names_may_hold_any_character(self, storage: Storage) -> None:
        paths = ["p=a%2Fb/x y", "p=ü/[x]{y}*?", "p=a=b/#;&+'\"", "p=\n/x", "p=\\/x"]
        for i, path in enumerate(paths):
            self.put(storage, path, bytes([i]))
        assert self.names(storage) == sorted(paths)
        assert [storage.read(path) for path in paths] == [bytes([i]) for i in range(len(paths))]

    def test_a_range_is_exact(self, storage: Storage) -> None:
        self.put(storage, "f", bytes(range(100)))
        stats = ReadStats()
        with storage.open("f", stats) as file:
            assert (file.size, file.name) == (100, f"{storage.root}/f")
            assert file.read_range(10, 5) == bytes(range(10, 15))
            assert file.read_range(0, 100) == bytes(range(100))
            assert file.read_range(100, 0) == b""
            assert file.read_ranges([(90, 10), (0, 1)]) == [bytes(range(90, 100)), b"\x00"]
        assert (stats.reads, stats.bytes) == (5, 116)

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

    def test_an_open_file_outlives_its_name(self, storage: Storage) -> None:
        self.put(storage, "f", b"old")
        with storage.open("f") as file:
            storage.delete("f")
            self.put(storage, "f", b"new!")
            assert (file.size, file.read_range(0, 3)) == (3, b"old")

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
