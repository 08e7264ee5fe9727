"""shadow/storage/local_status.py: the status of a local file, from the memory of the system."""

import os
from pathlib import Path

import pytest

from gnomon.shadow.storage import LocalStorage, status_in_memory
from gnomon.shadow.storage import waiting as module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(b"four")
    LocalStorage(str(tmp_path)).open("file").close()
    if status_in_memory(str(file)) is None:
        pytest.skip("this system cannot tell the status of a file without a wait")
    return file


def note(status: module.LocalStatus, file: Path) -> None:
    with file.open("rb") as opened:
        status.note_file_system(opened.fileno(), file.stat().st_dev)


def test_the_status_is_that_of_stat_and_follows_each_change(file: Path) -> None:
    for change in (lambda: None, lambda: file.write_bytes(b"sixsix"), lambda: os.utime(file, ns=(1, 1)), file.touch):
        change()
        found, expected = status_in_memory(str(file)), file.stat()
        inode = (expected.st_dev, expected.st_ino)
        assert found == (expected.st_size, expected.st_mtime_ns, expected.st_ctime_ns, inode, "")


def test_another_file_of_the_name_is_looked_at_also_through_links(file: Path) -> None:
    link = file.parent / "link"
    link.symlink_to(file)
    other = file.parent / "other"
    other.write_bytes(b"others")
    link.stat()  # the first time, the system notes when a link was followed
    assert status_in_memory(str(link)) == status_in_memory(str(file))
    os.replace(other, file)
    found = status_in_memory(str(link))
    assert found is not None
    assert found.size == 6


def test_no_status_is_told_of_what_is_no_file_or_gone(file: Path) -> None:
    assert status_in_memory(str(file.parent)) is None
    os.mkfifo(file.parent / "pipe")
    assert status_in_memory(str(file.parent / "pipe")) is None
    file.unlink()
    assert status_in_memory(str(file)) is None


def test_no_status_is_told_on_a_file_system_that_is_not_known_to_be_local(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = module.LocalStatus()
    assert fresh.of(str(file)) is None, "nobody looked where it lies"
    monkeypatch.setattr(module, "LOCAL", frozenset())  # as NFS, CIFS and FUSE are none
    note(fresh, file)
    assert fresh.of(str(file)) is None


def test_a_system_without_the_calls_tells_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_system", lambda: None)
    without = module.LocalStatus()
    note(without, file)
    assert without.of(str(file)) is None


def test_looks_leave_no_descriptor_open(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        note(module.LocalStatus(), file)
        status_in_memory(str(file))
        status_in_memory(str(file.parent))
    assert len(os.listdir("/proc/self/fd")) == before
