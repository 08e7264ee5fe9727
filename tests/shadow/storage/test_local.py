"""Local disk keeps the contract of a store; and what is true of it alone."""

import errno
import os
from pathlib import Path

import pytest

from shadow.errors import FileChanged, StorageError
from shadow.storage import LocalStorage, Storage, storage_at
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
