"""Local disk keeps the contract of a store; tests for local disks only."""

import errno
import os
from pathlib import Path

import pytest

from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError
from gnomon.shadow.storage import LocalStorage, Storage, storage_at
from tests.shadow.storage.contract import SharedStorageContract


class TestLocalStorage(SharedStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return storage_at(str(tmp_path / "root"))


@pytest.mark.parametrize("location", ["{}", "file://{}", "file:{}", "file://localhost{}", "{}/", "{}/x/.."])
def test_a_path_and_a_file_url_are_the_same_place(tmp_path: Path, location: str) -> None:
    (tmp_path / "x").mkdir()
    assert storage_at(location.format(tmp_path)).root == str(tmp_path)


def test_a_relative_path_is_made_absolute_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = storage_at("lake")
    monkeypatch.chdir("/")
    storage.put_new("f", [b"x"])
    assert (tmp_path / "lake/f").read_bytes() == b"x"


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x")
    assert LocalStorage(str(tmp_path / "root")).read(str(tmp_path / "elsewhere")) == b"x"


def test_a_listing_skips_what_is_no_file_and_follows_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").write_bytes(b"12")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file_link").symlink_to(tmp_path / "real/f")
    (tmp_path / "to_nothing").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    found = [(info.path, info.size) for info in LocalStorage(str(tmp_path)).list()]
    assert found == [("file_link", 2), ("link/f", 2), ("real/f", 2)]


@pytest.mark.parametrize("how", ["rewritten in place", "cut", "appended to"])
def test_a_file_that_is_written_to_while_it_is_open_is_changed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old" * 100)
    os.utime(path, ns=(1, 1))
    with LocalStorage(str(tmp_path)).open("f") as file:
        assert file.read_range(0, 3) == b"old"
        with path.open("r+b") as writer:
            if how == "cut":
                writer.truncate(10)
            else:
                writer.seek(0, os.SEEK_END if how == "appended to" else os.SEEK_SET)
                writer.write(b"new")
        for ranges in ([(0, 3)], [(0, 3), (200, 3)]):
            with pytest.raises(FileChanged, match=r"/f: the file changed \(") as caught:
                file.read_ranges(ranges)
            assert caught.value.size == path.stat().st_size


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_what_the_operating_system_refuses_is_one_line_with_path_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("there", [b"x"])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    for call in (lambda: storage.put_new("p/f", [b"x"]), lambda: storage.move_new("there", "p/f")):
        with pytest.raises(StorageError, match=rf"^{tmp_path}/p/f: {os.strerror(code)}; \w+") as caught:
            call()
        assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert [info.path for info in storage.list(hidden=True)] == ["there"]


def test_a_pipe_is_refused_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="pipe: not a file"):
        LocalStorage(str(tmp_path)).open("pipe")


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(fd: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{fd}')).name.split('-')[0]}")
        fsync(fd)

    def linked(source: Path, target: Path) -> None:
        steps.append(f"link {target.name}")
        link(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    root = tmp_path / "root"
    LocalStorage(str(root)).put_new("new/name", [b"x"])
    assert steps == [f"sync {tmp_path.name.split('-')[0]}", "sync root", "sync _staged", "link name", "sync new"]


def test_closing_twice_closes_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    file = LocalStorage(str(tmp_path)).open("f")
    file.close()
    with LocalStorage(str(tmp_path)).open("f") as other:
        file.close()
        assert other.read_range(0, 1) == b"x"


def test_a_file_is_not_lost_whose_new_folder_is_removed_while_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_new("from", [b"data"])
    make_folders, removed = storage._make_folders, []

    def swept(folder: Path) -> None:
        make_folders(folder)
        if not removed:
            removed.append(folder.rmdir())

    monkeypatch.setattr(storage, "_make_folders", swept)
    storage.move_new("from", "p=1/to")
    assert removed
    assert storage.read("p=1/to") == b"data"
    assert not (tmp_path / "from").exists()
    removed.clear()
    storage.put_new("p=2/new", [b"data"])
    assert removed
    assert storage.read("p=2/new") == b"data"


def test_the_old_name_goes_when_the_new_one_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("from/x", [b"data"])
    steps: list[str] = []
    fsync, unlink = os.fsync, Path.unlink

    def synced(fd: int) -> None:
        steps.append(f"sync {os.path.relpath(os.readlink(f'/proc/self/fd/{fd}'), tmp_path)}")
        fsync(fd)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        steps.append(f"unlink {path.relative_to(tmp_path)}")
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "unlink", unlinked)
    storage.move_new("from/x", "p=1/y")
    assert steps == ["sync from/x", "sync .", "sync p=1", "unlink from/x"]


@pytest.mark.parametrize("left", ["both names", "the new one"])
def test_a_name_that_another_program_gave_is_durable_when_the_caller_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    (tmp_path / "q=1/p=1").mkdir(parents=True)
    (tmp_path / "q=1/p=1/to").write_bytes(b"data")
    if left == "both names":
        (tmp_path / "from").hardlink_to(tmp_path / "q=1/p=1/to")
    steps: list[str] = []
    fsync = os.fsync

    def synced(fd: int) -> None:
        steps.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", synced)
    with pytest.raises(AlreadyExists if left == "both names" else FileNotFoundError):
        LocalStorage(str(tmp_path)).move_new("from", "q=1/p=1/to")
    assert steps[-3:] == ["q=1/p=1", "q=1", "."]


def test_a_file_keeps_its_old_name_where_the_new_one_is_taken_away_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("from", [b"data"])
    link = os.link

    def linked(source: Path, target: Path) -> None:
        link(source, target)
        target.unlink()

    monkeypatch.setattr(os, "link", linked)
    with pytest.raises(StorageError, match="to: other programs change the folder again and again; run it again"):
        storage.move_new("from", "to")
    assert storage.read("from") == b"data"


def test_a_file_whose_folder_is_removed_again_and_again_is_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("from", [b"data"])
    make_folders = storage._make_folders

    def swept(folder: Path) -> None:
        make_folders(folder)
        folder.rmdir()

    monkeypatch.setattr(storage, "_make_folders", swept)
    for call in (lambda: storage.move_new("from", "p=1/to"), lambda: storage.put_new("p=1/to", [b"x"])):
        with pytest.raises(StorageError, match="p=1/to: other programs change the folder again and again"):
            call()
    assert storage.read("from") == b"data"


def test_a_folder_that_another_program_made_is_synced_by_its_first_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q=1/p=1").mkdir(parents=True)
    steps: list[str] = []
    fsync = os.fsync

    def synced(fd: int) -> None:
        steps.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path).partition("_staged")[0])
        fsync(fd)

    monkeypatch.setattr(os, "fsync", synced)
    storage = LocalStorage(str(tmp_path))
    for name in "xy":
        storage.put_new(f"q=1/p=1/{name}", [b"x"])
    put = ["q=1/p=1/", "q=1/p=1"]
    assert steps == [".", "q=1", *put, *put]


def test_what_may_not_be_moved_is_said_in_one_line(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("file", [b"x"])
    for path, target in (("file/below", "to"), ("file", "file/below")):
        with pytest.raises(StorageError, match=r"file/below: .*; use a path in which no folder is a file"):
            storage.move_new(path, target)
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError, match="x: Is a directory"):
        storage.move_new("x", "to")
    assert storage.read("file") == b"x"
