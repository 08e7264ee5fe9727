"""The log of appends: each row is appended once, even if several programs append it at once and die at any point."""

import contextlib
import json
import multiprocessing
import secrets
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnomon.shadow.commit.append_log import (
    Append,
    AppendedFile,
    AppendLog,
    commit_append,
    find_batch,
    mark_appended,
    move_files,
    open_log,
    read_log,
    settle,
    staging_folder,
    sweep,
)
from gnomon.shadow.errors import (
    AlreadyExists,
    ConcurrentCommit,
    DamagedMetadata,
    NewerFormat,
    ShadowError,
    StorageError,
    UsageError,
)
from gnomon.shadow.metadata.append_records import APPENDED, DONE, VOID, append_path, batch_path, mark_path, read_append
from gnomon.shadow.metadata.json_files import encode
from gnomon.shadow.storage import LocalStorage, Storage
from tests.shadow.faults import Fault, FaultyStorage
from tests.shadow.memory_store import MemoryStorage

BATCHES = {f"batch {n}": {f"key {key}" for key in range(3 * n, 3 * n + 6)} for n in range(4)}  # each overlaps the next


def keys_of(source: Storage) -> Counter[str]:
    """The keys in the files that a reader of the source sees."""
    return Counter(key for info in source.list() for key in json.loads(source.read(info.path)))


def finish(storage: Storage, source: Storage) -> AppendLog:
    log = open_log(storage)
    for append in log.open:
        if move_files(storage, source, append):
            mark_appended(storage, append)
        settle(storage, source, append, append.number)
    return log


def staged(source: Storage, keys: set[str], folder: str, token: str = "t") -> tuple[AppendedFile, ...]:
    """Two files, each in its own partition."""
    files = []
    for part in (0, 1):
        some = sorted(key for key in keys if int(key.split()[1]) % 2 == part)
        if some:
            data, path = json.dumps(some).encode(), f"p={part}/x"
            source.put_new(f"{folder}/{path}", [data])
            files.append(AppendedFile(f"{folder}/{path}", f"{path}-{token}", len(data), len(some)))
    return tuple(files)


def begun(storage: Storage, source: Storage, batch: str, keys: set[str], append_id: str = "t") -> Append:
    """An append that has staged its files, and is not put yet."""
    return begun_after(open_log(storage), storage, source, batch, keys, append_id)


def begun_after(
    log: AppendLog, storage: Storage, source: Storage, batch: str, keys: set[str], append_id: str
) -> Append:
    folder = staging_folder(storage.root, log.last + 1, append_id)
    files = staged(source, keys, folder, append_id)
    return Append(log.last + 1, append_id, log.parent, batch, "", folder, files, {"appended": len(keys)})


def run(storage: Storage, source: Storage, batch: str) -> None:
    """Run an append with sets in place of the index. Its look-ups are as new as the log that it read, or newer."""
    while find_batch(storage, batch) is None:
        log = finish(storage, source)
        if find_batch(storage, batch) is None:
            new = BATCHES[batch] - keys_of(source).keys()
            with contextlib.suppress(ConcurrentCommit):
                commit_append(storage, begun_after(log, storage, source, batch, new, secrets.token_hex(4)))


def check(storage: Storage, source: Storage, batches: set[str], appends: int | None = None) -> None:
    assert keys_of(source) == Counter(set().union(*(BATCHES[batch] for batch in batches)))
    found = open_log(storage)
    assert (found.last, found.open) == (len(batches) if appends is None else appends, ())
    for batch in batches:
        known = find_batch(storage, batch)
        assert known is not None
        assert known.append.batch == batch


@pytest.fixture
def stores(tmp_path: Path) -> tuple[LocalStorage, LocalStorage]:
    return LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))


def try_at_every_call(
    make: Callable[[str], Storage], fault: Fault, where: str, step: int, do: Callable[[Storage, Storage], object]
) -> int:
    """Append a batch with a fault at every step-th call; then append another batch, and the first one again."""
    counted = FaultyStorage(MemoryStorage()), FaultyStorage(MemoryStorage())
    run(*counted, "batch 0")
    calls = len(counted[where == "source"].calls)
    for at in range(0, calls, step):
        index, source = (make(f"{at}{name}") for name in ("index", "source"))
        faulty = FaultyStorage(index if where == "index" else source, fault, at)
        do(*((faulty, source) if where == "index" else (index, faulty)))
        assert max(keys_of(source).values(), default=1) == 1
        run(index, source, "batch 1")
        run(index, source, "batch 0")
        check(index, source, {"batch 0", "batch 1"})
    return calls


@pytest.mark.parametrize("where", ["index", "source"])
def test_an_append_whose_store_fails_at_any_call_is_finished_by_the_next_run(where: str) -> None:
    def fails(index: Storage, source: Storage) -> None:
        with contextlib.suppress(ShadowError, OSError):
            run(index, source, "batch 0")

    for fault in set(Fault) - {Fault.KILL}:
        assert try_at_every_call(MemoryStorage, fault, where, 1, fails) > 6


@pytest.mark.process
@pytest.mark.parametrize("where", ["index", "source"])
def test_so_is_one_whose_process_is_killed_at_any_call(tmp_path: Path, where: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", __name__])
    codes = []

    def dies(index: Storage, source: Storage) -> None:
        process = context.Process(target=run, args=(index, source, "batch 0"))
        process.start()
        process.join()
        codes.append(process.exitcode)

    try_at_every_call(lambda name: LocalStorage(str(tmp_path / name)), Fault.KILL, where, 6, dies)
    assert set(codes) == {-signal.SIGKILL}


def test_of_racing_appends_each_key_is_appended_once(stores: tuple[LocalStorage, LocalStorage]) -> None:
    start = threading.Barrier(2 * len(BATCHES))

    def append(batch: str) -> None:
        start.wait()
        for _ in range(100):
            with contextlib.suppress(StorageError):  # its staged files were swept, since its number is taken
                run(*stores, batch)
                break

    threads = [threading.Thread(target=append, args=(batch,)) for batch in [*BATCHES, *BATCHES]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(*stores, set(BATCHES))


def test_a_file_that_is_lost_before_it_has_its_name_is_an_error_that_names_it(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1", "key 2"})
    assert commit_append(index, append)
    source.delete(append.files[1].staged)
    with pytest.raises(StorageError, match=r"1-t/p=1/x: missing, and so is p=1/x-t.*restore either file"):
        finish(index, source)
    assert find_batch(index, "batch 0") is None
    assert open_log(index).open == (append,)
    index.delete(append_path(1))  # the advice of the error: give the append up
    run(index, source, "batch 0")
    check(index, source, {"batch 0"})


def test_a_name_that_another_file_has_is_an_error_and_no_row_is_lost(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 2"})
    assert commit_append(index, append)
    for theirs in (b"[]", json.dumps(["key 4"]).encode()):  # of another size, and of the same size
        source.put_new(append.files[0].path, [theirs])
        with pytest.raises(AlreadyExists, match="p=0/x-t: the name is taken"):
            finish(index, source)
        assert json.loads(source.read(append.files[0].staged)) == ["key 2"]
        source.delete(append.files[0].path)
    finish(index, source)
    assert keys_of(source) == {"key 2": 1}


def test_a_file_that_has_both_names_after_a_crash_loses_the_staged_one(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 2"})
    assert commit_append(index, append)
    source.put_new(append.files[0].path, [source.read(append.files[0].staged)])
    assert move_files(index, source, append)
    assert [info.path for info in source.list(hidden=True)] == ["p=0/x-t"]


@pytest.mark.parametrize("mark", [APPENDED, DONE, "batch"])
def test_a_file_that_was_removed_after_the_append_was_marked_is_nobody_s_error_and_stays_removed(
    stores: tuple[LocalStorage, LocalStorage], mark: str
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1", "key 2"})
    assert commit_append(index, append)
    if mark == APPENDED:
        move_files(index, source, append)
        mark_appended(index, append)
    else:
        finish(index, source)
        kept = batch_path("batch 0") if mark == "batch" else mark_path(append, DONE)
        for info in list(index.list("_shadow", hidden=True)):
            if info.path not in (kept, append_path(1)):
                index.delete(info.path)
    for file in append.files:
        source.delete(file.path)
    source.put_new(append.files[0].staged, [b"left behind"])
    assert not move_files(index, source, append)
    finish(index, source)
    assert keys_of(source) == {}
    assert open_log(index).open == ()


def test_a_file_that_is_marked_and_removed_while_another_program_moves_it_is_no_error(tmp_path: Path) -> None:
    index, source = LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))
    append = begun(index, source, "batch 0", {"key 1"})
    assert commit_append(index, append)

    def other() -> None:
        finish(index, source)
        source.delete(append.files[0].path)

    class Slow(LocalStorage):
        def move_new(self, path: str, target: str) -> None:
            other()
            super().move_new(path, target)

    assert not move_files(index, Slow(source.root), append)
    assert keys_of(source) == {}


def test_an_append_that_is_known_is_finished_whatever_became_of_its_files(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    run(index, source, "batch 0")
    append = read_append(index, 1)
    index.delete(mark_path(append, DONE))  # a program died between the two puts of settle
    for info in source.list():
        source.delete(info.path)
    assert open_log(index).open == ()
    assert index.read(mark_path(append, DONE))


def test_a_number_is_one_append_s_and_a_put_that_is_made_again_is_known(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    first, second = (begun(index, source, "batch 0", {"key 1"}, name) for name in "ab")
    assert commit_append(index, first)
    assert commit_append(index, first)
    assert not commit_append(index, second)
    assert open_log(index).open == (first,)


# -- an index that was deleted and built again -------------------------------------------------------------------------


def wipe(index: Storage) -> None:
    index.delete_folder("_shadow")


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_an_append_into_an_index_that_was_made_anew_is_void_and_later_ones_chain_on(
    stores: tuple[LocalStorage, LocalStorage], before: int, after: int
) -> None:
    """`before` appends precede it, and `after` appends of the new history follow."""
    index, source = stores
    batches = ["batch 1", "batch 2", "batch 3"]
    for batch in batches[:before]:
        run(index, source, batch)
    slow = begun(index, source, "batch 0", BATCHES["batch 0"] - keys_of(source).keys())
    wipe(index)
    for batch in batches[:after]:
        run(index, source, batch)
    if after > before:
        assert not commit_append(index, slow)  # the number is taken
    else:
        with pytest.raises(ConcurrentCommit, match=rf"built again while append {before + 1} of batch 'batch 0' ran"):
            commit_append(index, slow)
        with pytest.raises(ConcurrentCommit, match="built again"):
            commit_append(index, slow)  # made again
    for batch in batches:
        run(index, source, batch)
    assert not any(slow.append_id in path for path in (info.path for info in source.list()))
    run(index, source, "batch 0")
    check(index, source, set(BATCHES), appends=4 + (after <= before))
    assert read_log(index).void == ({before + 1} if after <= before else set())
    assert list(source.list("_gnomon", hidden=True)) == []


def test_an_append_that_took_a_void_one_for_good_is_void_too(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    first = begun(index, source, "batch 0", {"key 1"}, "first")
    commit_append(index, first)
    second = begun(index, source, "batch 1", {"key 2"}, "second")
    wipe(index)
    for append in (first, second):
        with pytest.raises(ConcurrentCommit):
            commit_append(index, append)
    assert (open_log(index).void, open_log(index).open) == ({1, 2}, ())
    third = begun(index, source, "batch 2", {"key 3"}, "third")
    assert commit_append(index, third)
    assert open_log(index).open == (third,)


def test_whoever_finishes_an_append_of_an_index_that_was_made_anew_is_told(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1"}, "a")
    assert commit_append(index, append)
    wipe(index)
    open_log(index)
    for _ in range(2):
        for call in (
            lambda: move_files(index, source, append),
            lambda: mark_appended(index, append),
            lambda: settle(index, source, append, 1),
        ):
            with pytest.raises(ConcurrentCommit, match="built again"):
                call()
        if open_log(index).last == 0:
            assert commit_append(index, begun(index, source, "batch 0", {"key 1"}, "b"))
    assert keys_of(source) == {}


def test_a_mark_of_another_history_finishes_no_append(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 1")
    append = begun(index, source, "batch 0", {"key 1"}, "a")
    for mark in (APPENDED, DONE, VOID):
        for number in (1, 2):
            index.put_new(mark_path(Append(number, "old", "", "b", "", "f", (), {}), mark), [b"{}"])
    assert commit_append(index, append)
    assert (open_log(index).open, open_log(index).last) == ((append,), 2)
    index.delete(mark_path(read_append(index, 1), DONE))
    assert open_log(index).open == (append,)
    stray = Append(5, "stray", "other", "b", "", "f", (), {})
    index.put_new(mark_path(Append(5, "old", "", "b", "", "f", (), {}), DONE), [b"{}"])
    with pytest.raises(ConcurrentCommit):
        commit_append(index, stray)  # after a gap, in which no record was lost
    assert open_log(index).open == (append,)
    finish(index, source)
    assert keys_of(source)["key 1"] == 1


def test_a_finished_append_whose_record_is_gone_is_an_error(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    for batch in BATCHES:
        run(index, source, batch)
    index.delete(append_path(2))
    with pytest.raises(DamagedMetadata, match=r"0002\.json: missing, though append 3 was finished after it; restore"):
        open_log(index)


# -- staging -----------------------------------------------------------------------------------------------------------


def test_a_settled_append_sweeps_what_others_staged_that_lost_and_nothing_else(tmp_path: Path) -> None:
    index, source = LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))
    other = LocalStorage(str(tmp_path / "other index"))
    append = begun(index, source, "batch 0", {"key 1"})
    beside = [staging_folder(index.root, number, "x") for number in (1, 2)] + [staging_folder(other.root, 1, "x")]
    for folder in beside:
        source.put_new(f"{folder}/p=1/x", [b"x"])
    assert commit_append(index, append)
    move_files(index, source, append)
    mark_appended(index, append)
    assert len(list(source.list("_gnomon", hidden=True))) == 3
    settle(index, source, append, 1)
    assert [info.path for info in source.list("_gnomon", hidden=True)] == sorted(f"{name}/p=1/x" for name in beside[1:])


def test_what_an_append_of_another_history_sweeps_is_no_longer_aimed_at(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1"})
    sweep(index, source, 50)
    assert source.read(append.files[0].staged)
    assert commit_append(index, append)
    sweep(index, source, 50)
    assert source.read(append.files[0].staged)  # it is open
    finish(index, source)
    assert keys_of(source) == {"key 1": 1}


def test_the_last_one_to_leave_removes_the_empty_folders(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 0")
    assert sorted(path.name for path in Path(source.root).iterdir()) == ["p=0", "p=1"]


def test_two_indexes_on_one_source_finish_and_sweep_their_own(tmp_path: Path) -> None:
    source = LocalStorage(str(tmp_path / "source"))
    one, two = (LocalStorage(str(tmp_path / name)) for name in "ab")
    appends = [begun(index, source, "batch 0", {f"key {n}"}, f"i{n}") for n, index in enumerate((one, two))]
    for index, append in zip((one, two), appends, strict=True):
        assert commit_append(index, append)
    finish(one, source)
    assert keys_of(source) == {"key 0": 1}
    finish(two, source)
    assert keys_of(source) == {"key 0": 1, "key 1": 1}
    assert list(source.list("_gnomon", hidden=True)) == []


def test_programs_may_sweep_at_once(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 0")
    for turn in range(10):
        for token in "abc":
            source.put_new(f"{staging_folder(index.root, 1, token)}/p=1/{turn}", [b"x"])
        threads = [threading.Thread(target=sweep, args=(index, source, 1)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(source.list("_gnomon", hidden=True)) == []
    assert not Path(source.root, "_gnomon").exists()


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [append_path(1), batch_path("batch 0")])
def test_a_damaged_record_is_an_error_and_never_an_unknown_batch(
    stores: tuple[LocalStorage, LocalStorage], path: str
) -> None:
    index, source = stores
    run(index, source, "batch 0")
    file = Path(index.root, path)
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole.replace(b"batch 0", b"batch 1"), b"", encode({}), encode({"format_version": 1})):
        file.write_bytes(damaged)
        with pytest.raises(DamagedMetadata, match=rf"{path}.*; restore the file from a backup") as caught:
            find_batch(index, "batch 0") if "batches" in path else open_log(index)
        assert "--full" not in str(caught.value)
    settled = find_batch(index, "another")
    assert settled is None


@pytest.mark.parametrize("path", [append_path(1), batch_path("batch 0")])
def test_a_record_of_a_later_version_is_refused(stores: tuple[LocalStorage, LocalStorage], path: str) -> None:
    index, source = stores
    run(index, source, "batch 0")
    content = json.loads(index.read(path))
    del content["crc32"]
    for later in ({"format_version": 2}, {"more": 1}):
        index.delete(path)
        index.put_new(path, [encode({**content, **later})])
        with pytest.raises(NewerFormat, match=rf"{path}.*upgrade gnomon"):
            find_batch(index, "batch 0") if "batches" in path else open_log(index)


def test_a_record_under_another_name_is_refused(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 0")
    Path(index.root, batch_path("batch 0")).rename(Path(index.root, batch_path("batch 1")))
    with pytest.raises(DamagedMetadata, match="expected batch 'batch 1', found 'batch 0'"):
        find_batch(index, "batch 1")
    index.put_new(append_path(2), [index.read(append_path(1))])
    with pytest.raises(DamagedMetadata, match="expected append 2, found 1"):
        read_append(index, 2)


@pytest.mark.parametrize("batch", ["", 7, None, b"x"])
def test_what_names_no_batch_is_refused(stores: tuple[LocalStorage, LocalStorage], batch: Any) -> None:
    with pytest.raises(UsageError, match="batch id: expected a text that is not empty, found"):
        find_batch(stores[0], batch)


def test_a_record_is_read_back_as_it_was_put(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index = stores[0]
    parent = open_log(index).parent
    append = Append(1, "a", parent, "bätch\ud800", "digest", "f", (), {"rows": 1, "by": {"p=ü": [1]}})
    assert commit_append(index, append)
    assert open_log(index).open == (append,)


def test_an_append_that_is_settled_twice_is_settled(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1"})
    assert commit_append(index, append)
    for snapshot in (7, 8):
        move_files(index, source, append)
        mark_appended(index, append)
        settle(index, source, append, snapshot)
    found = find_batch(index, "batch 0")
    assert found is not None
    assert found.snapshot == 7
    assert [info.path for info in source.list(hidden=True)] == ["p=1/x-t"]


def test_records_keep_the_names_of_the_first_versions(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    append = begun(index, source, "batch 0", {"key 1"}, "a")
    assert commit_append(index, append)
    finish(index, source)
    record = json.loads(index.read("_shadow/loads/00000000000000000001.json"))
    assert (record["load_id"], record["number"]) == ("a", 1)
    assert json.loads(index.read(batch_path("batch 0")))["load"]["load_id"] == "a"
    assert json.loads(index.read("_shadow/loads/00000000000000000001-a.done"))["load_id"] == "a"
    assert read_append(index, 1) == append
