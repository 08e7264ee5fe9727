"""The cache on a local disk gives the bytes that were put, or nothing; it stays within its limit; and no state of its
folder fails a read."""

import errno
import fcntl
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from gnomon.shadow import open_index
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import source_root
from gnomon.shadow.storage import (
    ANY_TIME,
    CachedFile,
    DiskCache,
    FileInfo,
    Storage,
    WouldWait,
    disk_cache,
    looked_twice,
    through,
    without_waiting,
)
from gnomon.shadow.storage.disk_cache import BLOCK, HEAD_BYTES, LOCK, UNFINISHED, UNUSED_SECONDS
from tests.profiles import examples
from tests.shadow.far_store import FarStorage
from tests.shadow.make_index import index_source, write_source

DATA = random.Random(3).randbytes(5000)
WHO = ("part", "s3://lake/a.parquet", "", 12345, 17, '"etag"', 0, 5000)


def bytes_of(folder: Path) -> int:
    """What `du` shows of the files of the folder."""
    return sum(path.lstat().st_blocks * 512 for path in folder.iterdir())


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != LOCK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> DiskCache:
    return DiskCache(str(folder))


def test_the_bytes_that_were_put_are_given_to_every_process(cache: DiskCache, folder: Path) -> None:
    assert cache.get(WHO) is None
    cache.put(WHO, DATA)
    cache.put((*WHO, "empty"), b"")
    assert DiskCache(str(folder)).get(WHO) == DATA
    assert DiskCache(str(folder)).get((*WHO, "empty")) == b""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def damaged(dice: random.Random, data: bytes) -> Iterator[bytes]:
    """The entry with a wrong byte in each field of its head, some in its content, cut off, or longer."""
    places = [*range(HEAD_BYTES + 4), *range(len(data) - 4, len(data)), *dice.sample(range(len(data)), examples(200))]
    for at in places:
        yield data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        yield data[:at]
    yield data + b"\0"
    yield bytes(len(data))
    yield b""
    yield b"GNOMONC2" + data[8:]  # of a newer version


def test_a_damaged_entry_is_a_miss_and_is_removed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    DiskCache(str(folder)).put(WHO, DATA)
    (path,) = entries(folder)
    sound = path.read_bytes()
    for data in damaged(random.Random(6), sound):
        cache = DiskCache(str(folder))
        path.write_bytes(data)
        caplog.clear()
        assert cache.get(WHO) is None
        assert not path.exists()
        assert cache.get(WHO) is None
        (told,) = caplog.messages
        assert str(path) in told
    cache.put(WHO, DATA)
    assert path.read_bytes() == sound


@pytest.mark.parametrize("at", range(len(WHO)))
def test_an_entry_of_another_identity_is_a_miss(cache: DiskCache, folder: Path, at: int) -> None:
    other = (*WHO[:at], 99, *WHO[at + 1 :])
    cache.put(other, DATA)
    assert cache.get(WHO) is None
    (foreign,) = entries(folder)
    cache.put(WHO, DATA)
    (own,) = set(entries(folder)) - {foreign}
    own.write_bytes(foreign.read_bytes())
    assert cache.get(WHO) is None
    assert cache.get(other) == DATA


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_what_is_no_file_is_a_miss_and_hangs_no_reader(
    cache: DiskCache, folder: Path, make: Callable[[Path], None]
) -> None:
    cache.put(WHO, DATA)
    (path,) = entries(folder)
    path.unlink()
    make(path)
    assert cache.get(WHO) is None
    cache.put(WHO, DATA)
    cache.put((*WHO, 1), DATA)
    assert DiskCache(str(folder)).get((*WHO, 1)) in (DATA, None)


def test_the_folder_never_takes_more_than_its_limit_and_loses_what_was_used_longest_ago(folder: Path) -> None:
    limit, dice = 40 * BLOCK, random.Random(2)
    cache = DiskCache(str(folder), limit)
    cache.put(WHO, DATA)
    for number in range(300):
        size = dice.choice([0, 1, BLOCK, 2 * BLOCK, 9 * BLOCK])
        cache.put(("other", number), bytes(size))
        assert bytes_of(folder) <= limit
        for path in entries(folder):
            times = path.stat()
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 70 * 10**9))  # a minute passes
        assert cache.get(WHO) == DATA  # used again and again
    assert bytes_of(folder) > limit / 2
    assert cache.get(("other", 0)) is None
    smaller = DiskCache(str(folder), limit // 4)
    smaller.put(("other", "one more"), b"")
    assert bytes_of(folder) <= limit // 4


@pytest.mark.parametrize("limit", [0, 1, BLOCK, 3 * BLOCK])
def test_a_tiny_limit_is_kept_too(folder: Path, limit: int) -> None:
    cache = DiskCache(str(folder), limit)
    for number in range(20):
        cache.put(("one", number), bytes(number * 100))
    assert not folder.exists() or sum(path.stat().st_size for path in entries(folder)) <= max(0, limit - BLOCK)


WRITER = """
import fcntl, random, sys
from pathlib import Path
from gnomon.shadow.storage import DiskCache
folder, limit, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache, dice = DiskCache(folder, limit), random.Random(seed)
print("ready", flush=True)
hits = 0
for number in range(300):
    who = ("shared", dice.randrange(60))
    data = cache.get(who)
    expected = bytes([who[1]]) * (who[1] * 211)
    assert data in (None, expected), who
    hits += data is not None
    if data is None:
        cache.put(who, expected)
    with (Path(folder) / "_gnomon.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken = sum(path.lstat().st_blocks * 512 for path in Path(folder).iterdir())
    assert taken <= limit, taken
print(hits, flush=True)
"""


@pytest.mark.process
def test_processes_share_a_folder_of_a_tiny_limit_also_when_some_are_killed(folder: Path) -> None:
    limit = 30 * BLOCK

    def started(seed: int) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", WRITER, str(folder), str(limit), str(seed)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    writers = [started(seed) for seed in range(3)]
    for seed in range(3):
        victim = started(10 + seed)
        assert victim.stdout is not None
        victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        assert int(out.split()[-1]) > 0
    assert bytes_of(folder) <= limit


def test_what_a_killed_writer_left_is_counted_and_removed(folder: Path) -> None:
    limit = 10 * BLOCK
    cache = DiskCache(str(folder), limit)
    cache.put(WHO, DATA)
    (entry,) = entries(folder)
    (folder / (entry.name + UNFINISHED)).write_bytes(bytes(6 * BLOCK))
    os.truncate(folder / LOCK, 0)  # as a writer does before it changes the folder
    stranger = folder / "notes.txt"
    stranger.write_text("not ours")
    cache.put(("one", 1), DATA)
    assert not list(folder.glob(f"*{UNFINISHED}"))
    assert cache.get(WHO) == DATA
    assert stranger.exists()


@pytest.mark.parametrize("content", [b"", b"0 0\n", b"-5 1\n", b"999999999999999 1\n", b"\xff" * 64])
def test_a_damaged_count_is_made_again(folder: Path, content: bytes) -> None:
    limit = 10 * BLOCK
    cache = DiskCache(str(folder), limit)
    for number in range(30):
        (folder / LOCK).write_bytes(content) if folder.exists() else None
        cache.put(("one", number), DATA)
        assert bytes_of(folder) <= limit
    assert cache.get(("one", 29)) == DATA


def test_a_file_system_without_locks_costs_no_descriptors(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        cache._paused_until = 0.0  # a minute passes
        cache.put((number,), DATA)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(caplog.messages) == 1


def test_the_files_of_the_folder_are_no_data_of_a_source_that_has_it(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "text": ["one", "two"]})
    write_source(tmp_path / "lake", {"a.parquet": table})
    index_source(tmp_path / "lake", tmp_path / "index", ["k"])
    (tmp_path / "lake" / "lock").write_text("of another program")
    with open_index(tmp_path / "index", cache_folder=tmp_path / "lake") as index:
        assert index.fetch(1) == [{"k": 1, "text": "one"}]
    assert len(list((tmp_path / "lake").iterdir())) == 4  # with the lock, and what the fetch learned
    assert [info.path for info in source_root(tmp_path / "lake").list()] == ["a.parquet", "lock"]
    assert (tmp_path / "lake" / "lock").read_text() == "of another program"


def test_a_writer_that_holds_the_lock_delays_nobody(cache: DiskCache, folder: Path) -> None:
    cache.put(WHO, DATA)
    with (folder / LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cache.put(("one", 1), DATA)
        assert cache.get(WHO) == DATA
        assert cache.get(("one", 1)) is None
    cache.put(("one", 1), DATA)
    assert cache.get(("one", 1)) == DATA


def test_a_folder_that_is_removed_midway_is_made_again(cache: DiskCache, folder: Path) -> None:
    removed, ended = threading.Event(), threading.Event()

    def remove() -> None:
        while not ended.is_set():
            shutil.rmtree(folder, ignore_errors=True)
            removed.set()

    remover = threading.Thread(target=remove)
    remover.start()
    for number in range(300):
        cache.put(("one", number), DATA)
        assert cache.get(("one", number)) in (DATA, None)
    ended.set()
    remover.join()
    assert removed.is_set()
    again = DiskCache(str(folder))
    again.put(WHO, DATA)
    assert again.get(WHO) == DATA


@pytest.mark.parametrize("where", ["file/cache", "file"])
def test_a_folder_that_cannot_be_made_costs_one_line_in_the_log(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(str(tmp_path / where))
    for number in range(5):
        cache.put((number,), DATA)
        assert cache.get((number,)) is None
    assert len(caplog.messages) == 1


AS_NOBODY = """
import logging, os, sys
from gnomon.shadow.storage import DiskCache
logging.basicConfig(format="%(message)s")
if os.geteuid() == 0:
    os.setuid(65534)
cache = DiskCache(sys.argv[1])
assert cache.get(("one",)) == b"kept"
for number in range(5):
    cache.put((number,), b"more")
    assert cache.get((number,)) is None
"""


@pytest.mark.process
def test_a_folder_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"gnomon-cache-{os.getpid()}"
    try:
        DiskCache(str(folder)).put(("one",), b"kept")
        for path in folder.iterdir():
            path.chmod(0o444)
            os.utime(path, (0, path.stat().st_mtime - 3600))
        folder.chmod(0o555)
        words = [sys.executable, "-c", AS_NOBODY, str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (told,) = done.stderr.splitlines()
        assert "Permission denied" in told
        folder.chmod(0o000)
        done = subprocess.run(
            [*words[:2], words[2].replace('== b"kept"', "is None"), words[3]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stderr.splitlines()) == 1
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


ON_A_FULL_DISK = """
import logging, resource, sys
from gnomon.shadow.storage import DiskCache
logging.basicConfig(format="%(message)s")
cache = DiskCache(sys.argv[1])
cache.put(("small",), b"kept")
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for number in range(5):
    cache.put((number,), bytes(20_000))
    assert cache.get((number,)) is None
assert cache.get(("small",)) == b"kept"
"""


@pytest.mark.process
def test_a_disk_that_takes_no_more_costs_one_line_in_the_log_and_keeps_nothing_half(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (told,) = done.stderr.splitlines()
    assert "File too large" in told
    assert len(entries(folder)) == 1


def test_an_entry_that_nobody_uses_goes_after_a_week_and_one_that_is_used_stays(folder: Path) -> None:
    DiskCache(str(folder)).put(("old",), DATA)
    DiskCache(str(folder)).put(("used",), DATA)
    for path in entries(folder):
        os.utime(path, (0, path.stat().st_mtime - UNUSED_SECONDS - 100))
    assert DiskCache(str(folder)).get(("used",)) == DATA
    DiskCache(str(folder)).tidy()
    assert len(entries(folder)) == 2  # looked for once a day
    total, _ = (folder / LOCK).read_text().split()
    (folder / LOCK).write_text(f"{total} 1000\n")
    DiskCache(str(folder)).tidy()
    assert DiskCache(str(folder)).get(("used",)) == DATA
    assert len(entries(folder)) == 1


def test_a_caller_that_must_not_wait_reads_no_disk(cache: DiskCache) -> None:
    cache.put(WHO, DATA)
    with without_waiting(1 << 20), pytest.raises(WouldWait):
        cache.get(WHO)


@pytest.mark.parametrize("wrong", ["", "s3://bucket/cache"])
def test_a_place_that_is_no_local_folder_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="cache_folder: expected a folder on a local disk"):
        disk_cache(wrong)
    assert disk_cache(None) is None
    with pytest.raises(UsageError, match="cache_folder_bytes: expected a number of bytes, 0 or more, found -1"):
        disk_cache("cache", -1)


# -- remote files ------------------------------------------------------------------------------------------------------


class Far:
    """A file on a remote store that counts its reads."""

    def __init__(self, cache: DiskCache) -> None:
        self.store = FarStorage("/far/index")
        self.store.put_new("data/a", [DATA])
        (info,) = self.store.list()
        self.info = info
        self.cache = cache
        self.reads: list[str] = []
        self.store.rounds = self  # type: ignore[assignment]

    def read(self, name: str) -> None:
        self.reads.append(name)

    @property
    def through(self) -> Storage:
        """The storage as another process has it."""
        return through(self.cache, cast(Storage, self.store), ["data"])

    def file(self, known: FileInfo) -> CachedFile:
        return cast(CachedFile, self.through.open("data/a", known=known))


def test_only_missing_parts_are_read_from_the_store(cache: DiskCache) -> None:
    far = Far(cache)
    spans = [(0, 10), (100, 50), (4990, 10), (7, 0)]
    for asked in (spans[:2], spans, spans[::-1]):
        with far.file(far.info) as file:
            assert file.read_ranges(asked) == [DATA[begin : begin + length] for begin, length in asked]
    assert far.reads == ["data/a"] * 2  # of the first call, and of the part that the second one adds


@pytest.mark.parametrize("field", ["size", "mtime_ns", "etag"])
def test_another_state_of_a_file_is_read_from_the_store(cache: DiskCache, field: str) -> None:
    far = Far(cache)
    known = far.info._replace(mtime_ns=ANY_TIME)
    with far.file(known) as file:
        file.read_range(0, 10)
    before = len(far.reads)
    with far.file(known) as file:
        file.read_range(0, 10)
    assert len(far.reads) == before
    other = known._replace(**{field: {"size": 4000, "mtime_ns": 5, "etag": '"new"'}[field]})
    identity = CachedFile(cache, "/far/index/data/a", other, lambda: far.store.open("data/a"))
    identity.read_range(0, 10)
    assert len(far.reads) == before + 1


def test_a_listed_file_is_read_again_when_a_listing_shows_another_state(cache: DiskCache) -> None:
    far = Far(cache)
    far.store.put_new("log/1", [b"one"])
    for _ in range(2):
        storage = far.through
        list(storage.list("log"))
        assert storage.read("log/1") == b"one"
    assert far.reads.count("log/1") == 1
    far.store.delete("log/1")
    far.store.put_new("log/1", [b"two"])
    storage = far.through
    assert storage.read("log/1") == b"two"  # not listed: from the store
    list(storage.list("log"))
    assert storage.read("log/1") == b"two"
    assert far.through.expect_last("log") == next(far.store.list("log"))  # type: ignore[attr-defined]


def test_a_second_look_at_a_damaged_file_goes_to_the_store(cache: DiskCache) -> None:
    far = Far(cache)
    far.store.delete("data/a")
    far.store.put_new("data/a", [bytes(5000)])  # damaged
    assert far.through.read("data/a") == bytes(5000)
    far.store.delete("data/a")
    far.store.put_new("data/a", [DATA])  # restored

    def look() -> bytes:
        data = far.through.read("data/a")
        if data != DATA:
            raise ValueError
        return data

    assert looked_twice(far.store, look, (ValueError,)) == DATA
    assert far.through.read("data/a") == DATA
    assert far.reads.count("data/a") == 2


def test_local_files_are_not_kept(cache: DiskCache, tmp_path: Path) -> None:
    storage = cast(Storage, FarStorage("memory://of/this/process"))
    assert through(cache, storage) is storage
    assert through(None, storage) is storage
