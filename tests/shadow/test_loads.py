"""The log of loads: of rows that several programs load at once, and that die at any point, each is appended once."""

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

from shadow.errors import (
    AlreadyExists,
    ConcurrentCommit,
    DamagedMetadata,
    NewerFormat,
    ShadowError,
    StorageError,
    UsageError,
)
from shadow.load_records import APPENDED, DONE, VOID, batch_path, load_path, mark_path, read_load
from shadow.loads import (
    AppendedFile,
    Load,
    Loads,
    append,
    find_batch,
    loads_of,
    mark_appended,
    put_load,
    read_loads,
    settle,
    staging_folder,
    sweep,
)
from shadow.metadata import encode
from shadow.storage import LocalStorage, Storage
from tests.shadow.faults import Fault, FaultyStorage
from tests.shadow.memory_store import MemoryStorage

BATCHES = {f"batch {n}": {f"key {key}" for key in range(3 * n, 3 * n + 6)} for n in range(4)}  # each overlaps the next


def keys_of(source: Storage) -> Counter[str]:
    """The keys in the files that a reader of the source sees."""
    return Counter(key for info in source.list() for key in json.loads(source.read(info.path)))


def finish(storage: Storage, source: Storage) -> Loads:
    log = loads_of(storage)
    for load in log.open:
        if append(storage, source, load):
            mark_appended(storage, load)
        settle(storage, source, load, load.number)
    return log


def staged(source: Storage, keys: set[str], folder: str, token: str = "t") -> tuple[AppendedFile, ...]:
    """Two files, in a partition each."""
    files = []
    for part in (0, 1):
        some = sorted(key for key in keys if int(key.split()[1]) % 2 == part)
        if some:
            data, path = json.dumps(some).encode(), f"p={part}/x"
            source.put_new(f"{folder}/{path}", [data])
            files.append(AppendedFile(f"{folder}/{path}", f"{path}-{token}", len(data), len(some)))
    return tuple(files)


def begun(storage: Storage, source: Storage, batch: str, keys: set[str], load_id: str = "t") -> Load:
    """A load that has staged its files, and is to be put."""
    return begun_after(loads_of(storage), storage, source, batch, keys, load_id)


def begun_after(log: Loads, storage: Storage, source: Storage, batch: str, keys: set[str], load_id: str) -> Load:
    folder = staging_folder(storage.root, log.last + 1, load_id)
    files = staged(source, keys, folder, load_id)
    return Load(log.last + 1, load_id, log.parent, batch, "", folder, files, {"appended": len(keys)})


def run(storage: Storage, source: Storage, batch: str) -> None:
    """A dedup load in which sets stand for the index. What it looks up is as new as the log that it saw, or newer."""
    while find_batch(storage, batch) is None:
        log = finish(storage, source)
        if find_batch(storage, batch) is None:
            new = BATCHES[batch] - keys_of(source).keys()
            with contextlib.suppress(ConcurrentCommit):
                put_load(storage, begun_after(log, storage, source, batch, new, secrets.token_hex(4)))


def check(storage: Storage, source: Storage, batches: set[str], loads: int | None = None) -> None:
    assert keys_of(source) == Counter(set().union(*(BATCHES[batch] for batch in batches)))
    found = loads_of(storage)
    assert (found.last, found.open) == (len(batches) if loads is None else loads, ())
    for batch in batches:
        known = find_batch(storage, batch)
        assert known is not None
        assert known.load.batch == batch


@pytest.fixture
def stores(tmp_path: Path) -> tuple[LocalStorage, LocalStorage]:
    return LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))


def try_at_every_call(
    make: Callable[[str], Storage], fault: Fault, where: str, step: int, do: Callable[[Storage, Storage], object]
) -> int:
    """Load a batch, and let every step-th call go wrong; then load another batch, and the first one again."""
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
def test_a_load_whose_store_fails_at_any_call_is_finished_by_the_next_run(where: str) -> None:
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


def test_of_racing_loads_each_key_is_appended_once(stores: tuple[LocalStorage, LocalStorage]) -> None:
    start = threading.Barrier(2 * len(BATCHES))

    def load(batch: str) -> None:
        start.wait()
        for _ in range(100):
            with contextlib.suppress(StorageError):  # what it staged was swept: its number is taken
                run(*stores, batch)
                break

    threads = [threading.Thread(target=load, args=(batch,)) for batch in [*BATCHES, *BATCHES]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(*stores, set(BATCHES))


def test_a_file_that_is_lost_before_it_has_its_name_is_an_error_that_names_it(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 1", "key 2"})
    assert put_load(index, load)
    source.delete(load.files[1].staged)
    with pytest.raises(StorageError, match=r"1-t/p=1/x: missing, and so is p=1/x-t.*restore either file"):
        finish(index, source)
    assert find_batch(index, "batch 0") is None
    assert loads_of(index).open == (load,)
    index.delete(load_path(1))  # what the error says gives it up
    run(index, source, "batch 0")
    check(index, source, {"batch 0"})


def test_a_name_that_another_file_has_is_an_error_and_no_row_is_lost(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 2"})
    assert put_load(index, load)
    for theirs in (b"[]", json.dumps(["key 4"]).encode()):  # of another size, and of the same
        source.put_new(load.files[0].path, [theirs])
        with pytest.raises(AlreadyExists, match="p=0/x-t: the name is taken"):
            finish(index, source)
        assert json.loads(source.read(load.files[0].staged)) == ["key 2"]
        source.delete(load.files[0].path)
    finish(index, source)
    assert keys_of(source) == {"key 2": 1}


def test_a_file_that_has_both_names_after_a_crash_loses_the_staged_one(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 2"})
    assert put_load(index, load)
    source.put_new(load.files[0].path, [source.read(load.files[0].staged)])
    assert append(index, source, load)
    assert [info.path for info in source.list(hidden=True)] == ["p=0/x-t"]


@pytest.mark.parametrize("mark", [APPENDED, DONE, "batch"])
def test_a_file_that_was_removed_after_the_load_was_marked_is_nobody_s_error_and_stays_removed(
    stores: tuple[LocalStorage, LocalStorage], mark: str
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 1", "key 2"})
    assert put_load(index, load)
    if mark == APPENDED:
        append(index, source, load)
        mark_appended(index, load)
    else:
        finish(index, source)
        kept = batch_path("batch 0") if mark == "batch" else mark_path(load, DONE)
        for info in list(index.list("_shadow", hidden=True)):
            if info.path not in (kept, load_path(1)):
                index.delete(info.path)
    for file in load.files:
        source.delete(file.path)
    source.put_new(load.files[0].staged, [b"left behind"])
    assert not append(index, source, load)
    finish(index, source)
    assert keys_of(source) == {}
    assert loads_of(index).open == ()


def test_a_file_that_is_marked_and_removed_while_another_program_moves_it_is_no_error(tmp_path: Path) -> None:
    index, source = LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))
    load = begun(index, source, "batch 0", {"key 1"})
    assert put_load(index, load)

    def other() -> None:
        finish(index, source)
        source.delete(load.files[0].path)

    class Slow(LocalStorage):
        def move_new(self, path: str, target: str) -> None:
            other()
            super().move_new(path, target)

    assert not append(index, Slow(source.root), load)
    assert keys_of(source) == {}


def test_a_load_that_is_known_is_finished_whatever_became_of_its_files(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    run(index, source, "batch 0")
    load = read_load(index, 1)
    index.delete(mark_path(load, DONE))  # a program died between the two puts of settle
    for info in source.list():
        source.delete(info.path)
    assert loads_of(index).open == ()
    assert index.read(mark_path(load, DONE))


def test_a_number_is_one_load_s_and_a_put_that_is_made_again_is_known(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    first, second = (begun(index, source, "batch 0", {"key 1"}, name) for name in "ab")
    assert put_load(index, first)
    assert put_load(index, first)
    assert not put_load(index, second)
    assert loads_of(index).open == (first,)


# -- an index that was deleted and made anew ---------------------------------------------------------------------------


def wipe(index: Storage) -> None:
    index.delete_folder("_shadow")


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_load_into_an_index_that_was_made_anew_is_void_and_later_ones_chain_on(
    stores: tuple[LocalStorage, LocalStorage], before: int, after: int
) -> None:
    """Before it was put there were so many loads, and after that so many of the new history."""
    index, source = stores
    batches = ["batch 1", "batch 2", "batch 3"]
    for batch in batches[:before]:
        run(index, source, batch)
    slow = begun(index, source, "batch 0", BATCHES["batch 0"] - keys_of(source).keys())
    wipe(index)
    for batch in batches[:after]:
        run(index, source, batch)
    if after > before:
        assert not put_load(index, slow)  # the number is taken
    else:
        with pytest.raises(ConcurrentCommit, match=rf"made anew, while load {before + 1} of batch 'batch 0' ran"):
            put_load(index, slow)
        with pytest.raises(ConcurrentCommit, match="made anew"):
            put_load(index, slow)  # made again
    for batch in batches:
        run(index, source, batch)
    assert not any(slow.load_id in path for path in (info.path for info in source.list()))
    run(index, source, "batch 0")
    check(index, source, set(BATCHES), loads=4 + (after <= before))
    assert read_loads(index).void == ({before + 1} if after <= before else set())
    assert list(source.list("_gnomon", hidden=True)) == []


def test_a_load_that_took_a_void_one_for_good_is_void_too(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    first = begun(index, source, "batch 0", {"key 1"}, "first")
    put_load(index, first)
    second = begun(index, source, "batch 1", {"key 2"}, "second")
    wipe(index)
    for load in (first, second):
        with pytest.raises(ConcurrentCommit):
            put_load(index, load)
    assert (loads_of(index).void, loads_of(index).open) == ({1, 2}, ())
    third = begun(index, source, "batch 2", {"key 3"}, "third")
    assert put_load(index, third)
    assert loads_of(index).open == (third,)


def test_whoever_finishes_a_load_of_an_index_that_was_made_anew_is_told(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 1"}, "a")
    assert put_load(index, load)
    wipe(index)
    loads_of(index)
    for _ in range(2):
        for call in (
            lambda: append(index, source, load),
            lambda: mark_appended(index, load),
            lambda: settle(index, source, load, 1),
        ):
            with pytest.raises(ConcurrentCommit, match="made anew"):
                call()
        if loads_of(index).last == 0:
            assert put_load(index, begun(index, source, "batch 0", {"key 1"}, "b"))
    assert keys_of(source) == {}


def test_a_mark_of_another_history_finishes_no_load(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 1")
    load = begun(index, source, "batch 0", {"key 1"}, "a")
    for mark in (APPENDED, DONE, VOID):
        for number in (1, 2):
            index.put_new(mark_path(Load(number, "old", "", "b", "", "f", (), {}), mark), [b"{}"])
    assert put_load(index, load)
    assert (loads_of(index).open, loads_of(index).last) == ((load,), 2)
    index.delete(mark_path(read_load(index, 1), DONE))
    assert loads_of(index).open == (load,)
    stray = Load(5, "stray", "other", "b", "", "f", (), {})
    index.put_new(mark_path(Load(5, "old", "", "b", "", "f", (), {}), DONE), [b"{}"])
    with pytest.raises(ConcurrentCommit):
        put_load(index, stray)  # behind a gap, in which no record was lost
    assert loads_of(index).open == (load,)
    finish(index, source)
    assert keys_of(source)["key 1"] == 1


def test_a_finished_load_whose_record_is_gone_is_an_error(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    for batch in BATCHES:
        run(index, source, batch)
    index.delete(load_path(2))
    with pytest.raises(DamagedMetadata, match=r"0002\.json: missing, though load 3 was finished after it; restore"):
        loads_of(index)


# -- staging -----------------------------------------------------------------------------------------------------------


def test_a_settled_load_sweeps_what_others_staged_that_lost_and_nothing_else(tmp_path: Path) -> None:
    index, source = LocalStorage(str(tmp_path / "index")), LocalStorage(str(tmp_path / "source"))
    other = LocalStorage(str(tmp_path / "other index"))
    load = begun(index, source, "batch 0", {"key 1"})
    beside = [staging_folder(index.root, number, "x") for number in (1, 2)] + [staging_folder(other.root, 1, "x")]
    for folder in beside:
        source.put_new(f"{folder}/p=1/x", [b"x"])
    assert put_load(index, load)
    append(index, source, load)
    mark_appended(index, load)
    assert len(list(source.list("_gnomon", hidden=True))) == 3
    settle(index, source, load, 1)
    assert [info.path for info in source.list("_gnomon", hidden=True)] == sorted(f"{name}/p=1/x" for name in beside[1:])


def test_what_a_load_of_another_history_sweeps_is_no_longer_aimed_at(
    stores: tuple[LocalStorage, LocalStorage],
) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 1"})
    sweep(index, source, 50)
    assert source.read(load.files[0].staged)
    assert put_load(index, load)
    sweep(index, source, 50)
    assert source.read(load.files[0].staged)  # it is open
    finish(index, source)
    assert keys_of(source) == {"key 1": 1}


def test_the_last_one_to_leave_removes_the_empty_folders(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 0")
    assert sorted(path.name for path in Path(source.root).iterdir()) == ["p=0", "p=1"]


def test_two_indexes_on_one_source_finish_and_sweep_their_own(tmp_path: Path) -> None:
    source = LocalStorage(str(tmp_path / "source"))
    one, two = (LocalStorage(str(tmp_path / name)) for name in "ab")
    loads = [begun(index, source, "batch 0", {f"key {n}"}, f"i{n}") for n, index in enumerate((one, two))]
    for index, load in zip((one, two), loads, strict=True):
        assert put_load(index, load)
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


@pytest.mark.parametrize("path", [load_path(1), batch_path("batch 0")])
def test_a_damaged_record_is_an_error_and_never_an_unknown_batch(
    stores: tuple[LocalStorage, LocalStorage], path: str
) -> None:
    index, source = stores
    run(index, source, "batch 0")
    file = Path(index.root, path)
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole.replace(b"batch 0", b"batch 1"), b"", encode({}), encode({"format_version": 1})):
        file.write_bytes(damaged)
        with pytest.raises(DamagedMetadata, match=rf"{path}.*; restore the file from a copy") as caught:
            find_batch(index, "batch 0") if "batches" in path else loads_of(index)
        assert "--full" not in str(caught.value)
    settled = find_batch(index, "another")
    assert settled is None


@pytest.mark.parametrize("path", [load_path(1), batch_path("batch 0")])
def test_a_record_of_a_later_version_is_refused(stores: tuple[LocalStorage, LocalStorage], path: str) -> None:
    index, source = stores
    run(index, source, "batch 0")
    content = json.loads(index.read(path))
    del content["crc32"]
    for later in ({"format_version": 2}, {"more": 1}):
        index.delete(path)
        index.put_new(path, [encode({**content, **later})])
        with pytest.raises(NewerFormat, match=rf"{path}.*upgrade it"):
            find_batch(index, "batch 0") if "batches" in path else loads_of(index)


def test_a_record_under_another_name_is_refused(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    run(index, source, "batch 0")
    Path(index.root, batch_path("batch 0")).rename(Path(index.root, batch_path("batch 1")))
    with pytest.raises(DamagedMetadata, match="expected batch 'batch 1', found 'batch 0'"):
        find_batch(index, "batch 1")
    index.put_new(load_path(2), [index.read(load_path(1))])
    with pytest.raises(DamagedMetadata, match="expected load 2, found 1"):
        read_load(index, 2)


@pytest.mark.parametrize("batch", ["", 7, None, b"x"])
def test_what_names_no_batch_is_refused(stores: tuple[LocalStorage, LocalStorage], batch: Any) -> None:
    with pytest.raises(UsageError, match="batch id: expected a text that is not empty, found"):
        find_batch(stores[0], batch)


def test_a_record_is_read_back_as_it_was_put(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index = stores[0]
    parent = loads_of(index).parent
    load = Load(1, "a", parent, "bätch\ud800", "digest", "f", (), {"rows": 1, "by": {"p=ü": [1]}})
    assert put_load(index, load)
    assert loads_of(index).open == (load,)


def test_a_load_that_is_settled_twice_is_settled(stores: tuple[LocalStorage, LocalStorage]) -> None:
    index, source = stores
    load = begun(index, source, "batch 0", {"key 1"})
    assert put_load(index, load)
    for snapshot in (7, 8):
        append(index, source, load)
        mark_appended(index, load)
        settle(index, source, load, snapshot)
    found = find_batch(index, "batch 0")
    assert found is not None
    assert found.snapshot == 7
    assert [info.path for info in source.list(hidden=True)] == ["p=1/x-t"]
