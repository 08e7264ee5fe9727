"""Loads: what is appended to a source, written down before any of it can be seen.

A load stages its files where no engine looks, then puts its record under the next number, create-only. That is its
commit. A load whose rows were looked up before another's commit loses the number and looks them up anew, so that no two
racing loads append one key. Whoever comes next finishes a load whose program died: gives the files their names, marks
that, indexes them, and puts the batch's own record. There is no lease, and no clock.

What a load looks its rows up in must be as new as the log whose `parent` it names, or newer: read the log first.

Records chain: each names its parent, the first one the log's origin. One whose parent is not the load before it was
looked up in an index that has been deleted since, and made anew. It is **void**: its files are never appended. Whether
it is follows from the records alone, so that all programs say the same.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from shadow import metadata
from shadow.errors import AlreadyExists, ConcurrentCommit, DamagedMetadata, StorageError
from shadow.load_records import (
    APPENDED,
    DONE,
    LOAD_NAME,
    LOADS_FOLDER,
    LOST,
    ORIGIN_PATH,
    REJECTED_FOLDER,
    STAGING_FOLDER,
    VOID,
    AppendedFile,
    Batch,
    Load,
    batch_path,
    encode_batch,
    encode_load,
    encode_origin,
    find_batch,
    load_path,
    mark_path,
    read_load,
    read_origin,
)
from shadow.storage import OpenFile, Storage

__all__ = [
    "REJECTED_FOLDER",
    "AppendedFile",
    "Batch",
    "Load",
    "Loads",
    "append",
    "find_batch",
    "loads_of",
    "mark_appended",
    "put_load",
    "read_loads",
    "settle",
    "staging_folder",
    "sweep",
]

PIECE = 8 << 20  # bytes: of two files that are compared


@dataclass(frozen=True)
class Loads:
    """The log of an index. `last` is the number of its last load, 0 where there is none; `parent` is what the next one
    names as its own; `open` are those that nobody finished yet, in their order, without the `void` ones. Where `marks`
    differ from what is there, they say what `loads_of` writes down; `has_origin` says whether the log can be told from
    others."""

    last: int
    parent: str
    open: tuple[Load, ...]
    void: frozenset[int]
    marks: tuple[tuple[Load, str], ...] = ()
    has_origin: bool = True


@dataclass(frozen=True)
class _Names:
    """What a listing shows: the numbers of the records, and the marks of each: (id, mark)."""

    records: frozenset[int]
    marks: dict[int, set[tuple[str, str]]]

    def is_closed(self, number: int) -> bool:
        return any(mark in (DONE, VOID) for _, mark in self.marks.get(number, ()))

    @cached_property
    def last(self) -> int:
        """The last number before a gap: what is behind one was put by a program of another history."""
        last = 0
        while last + 1 in self.records:
            last += 1
        return last

    @property
    def void(self) -> set[int]:
        return {
            number
            for number, marks in self.marks.items()
            if number <= self.last and any(mark == VOID for _, mark in marks)
        }


def staging_folder(index_root: str, number: int, token: str) -> str:
    """Where, below the source's root, the load that aims at a number stages its files."""
    return f"{_staging_of(index_root)}/{number}-{token}"


def _staging_of(index_root: str) -> str:
    return f"{STAGING_FOLDER}/{hashlib.blake2b(index_root.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def loads_of(storage: Storage) -> Loads:
    """The log. One whose batch is known is finished, whatever became of its files since; that, and which are void, is
    written down. So is the log's origin, before its first load."""
    found = read_loads(storage)
    if not found.has_origin:
        with suppress(AlreadyExists):
            storage.put_new(ORIGIN_PATH, [encode_origin(secrets.token_hex(8))])
        found = read_loads(storage)
    for load, mark in found.marks:
        _mark(storage, load, mark)
    return found


def read_loads(storage: Storage) -> Loads:
    """The log; nothing is written. DamagedMetadata where the record of a finished load is gone."""
    names = _names(storage)
    last = names.last
    for number in sorted(names.records):
        if number > last and names.is_closed(number) and _closing(names, read_load(storage, number)):
            where = f"{storage.root}/{load_path(last + 1)}"
            raise DamagedMetadata(f"{where}: missing, though load {number} was finished after it; {LOST}")
    parent, begin = _begin(storage, names)
    has_origin = bool(parent)
    left, marks, void = list[Load](), list[tuple[Load, str]](), set(names.void)
    for load in (read_load(storage, number) for number in range(begin, names.last + 1)):
        closing = _closing(names, load)
        if closing is None:
            closing = VOID if load.parent != parent else DONE if _is_known(storage, load) else None
            if closing is None:
                left.append(load)
            else:
                marks.append((load, closing))
        void = void | {load.number} if closing == VOID else void - {load.number}
        parent = _link(load, closing)
    return Loads(last, parent, tuple(left), frozenset(void), tuple(marks), has_origin)


def _begin(storage: Storage, names: _Names) -> tuple[str, int]:
    """The number from which on loads have to be looked at, and the parent of that one. What is before it is closed. A
    mark may be of another history: the last one is compared with its record."""
    begin = next((number for number in range(1, names.last + 1) if not names.is_closed(number)), names.last + 1)
    while begin > 1:
        before = read_load(storage, begin - 1)
        if closing := _closing(names, before):
            return _link(before, closing), begin
        begin -= 1
    return read_origin(storage), 1


def _names(storage: Storage) -> _Names:
    records, marks = set[int](), dict[int, set[tuple[str, str]]]()
    for info in storage.list(LOADS_FOLDER):
        if match := LOAD_NAME.fullmatch(info.path):
            if match[3]:
                marks.setdefault(int(match[1]), set()).add((match[2], match[3]))
            else:
                records.add(int(match[1]))
    return _Names(frozenset(records), marks)


def _closing(names: _Names, load: Load) -> str | None:
    """How a load ended, as far as it is marked."""
    marks = names.marks.get(load.number, ())
    return next((mark for mark in (VOID, DONE) if (load.load_id, mark) in marks), None)


def _link(load: Load, closing: str | None) -> str:
    """What the load after this one names as its parent. One that took a void load for a good one is void, too."""
    return f"void:{load.load_id}" if closing == VOID else load.load_id


def _is_known(storage: Storage, load: Load) -> bool:
    known = find_batch(storage, load.batch)
    return known is not None and known.load.load_id == load.load_id


def put_load(storage: Storage, load: Load) -> bool:
    """Commit a load; whether the number was free. ConcurrentCommit where the index was deleted and made anew since the
    load's rows were looked up: the load is void."""
    batch_path(load.batch)  # which says that a name is none
    try:
        storage.put_new(load_path(load.number), [encode_load(load)])
    except AlreadyExists:
        if read_load(storage, load.number).load_id != load.load_id:
            return False
    found = loads_of(storage)
    if load.number > found.last or load.number in found.void:
        raise _made_anew(storage, load)
    return True


def _made_anew(storage: Storage, load: Load) -> ConcurrentCommit:
    return ConcurrentCommit(
        f"{storage.root}: the index was deleted, and made anew, while load {load.number} of batch {load.batch!r} ran; "
        "it does not count, run it again"
    )


def _check_on_record(storage: Storage, load: Load) -> None:
    """ConcurrentCommit where the load is not that of its number any more."""
    is_there = _is_there(storage, load_path(load.number))
    if not is_there or read_load(storage, load.number).load_id != load.load_id:
        raise _made_anew(storage, load)


def append(storage: Storage, source: Storage, load: Load) -> bool:
    """Give the load's files their names, those that have theirs already excepted: several programs may do so at once.
    Whether there was anything to do: a load that is marked as appended is not touched, for what became of its files
    since is the business of those who own them. StorageError where a file has neither name; ConcurrentCommit where the
    index was made anew."""
    if _is_appended(storage, load):
        return False
    _check_on_record(storage, load)
    for file in load.files:
        try:
            _move(source, file)
        except (FileNotFoundError, AlreadyExists) as error:
            if _is_appended(storage, load):  # another program was faster, and files were replaced or removed since
                return False
            if isinstance(error, AlreadyExists):
                raise
            raise StorageError(
                f"{source.root}/{file.staged}: missing, and so is {file.path}, the name it was to have: "
                f"{file.rows} rows that load {load.number} of batch {load.batch!r} appends; restore either file, "
                f"or give the load up: remove {load_path(load.number)} of the index, and load the batch again"
            ) from None
    return True


def _move(source: Storage, file: AppendedFile) -> None:
    """FileNotFoundError where it has neither name, AlreadyExists where another file has the one it is to have."""
    try:
        source.move_new(file.staged, file.path)
    except FileNotFoundError:
        if _size(source, file.path) != file.size:
            raise
    except AlreadyExists:
        if not _is_same(source, file):
            raise
        source.delete(file.staged)  # it had both names when a program died


def _is_appended(storage: Storage, load: Load) -> bool:
    return any(_is_there(storage, mark_path(load, mark)) for mark in (APPENDED, DONE)) or _is_known(storage, load)


def _is_there(storage: Storage, path: str) -> bool:
    try:
        with storage.open(path):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def mark_appended(storage: Storage, load: Load) -> None:
    """Write down that all files of a load have their names: they are never moved again. ConcurrentCommit where the
    index was made anew."""
    _check_on_record(storage, load)
    _mark(storage, load, APPENDED)


def settle(storage: Storage, source: Storage, load: Load, snapshot: int) -> None:
    """Write down that a load is finished: its batch is known from now on. Then remove where it was staged, and where
    others were that lost. ConcurrentCommit where the index was made anew."""
    _check_on_record(storage, load)
    with suppress(AlreadyExists):  # another program finished the load
        storage.put_new(batch_path(load.batch), [encode_batch(load, snapshot)])
    _mark(storage, load, DONE)
    _clear(source, load.folder)
    sweep(storage, source, load.number)


def sweep(storage: Storage, source: Storage, number: int) -> None:
    """Remove what programs staged that aimed at a number which is taken by now, `number` or less: they can never
    commit. Several programs may do so at once; what cannot be removed now, the next one removes."""
    found = loads_of(storage)
    taken, mine = min(number, found.last), _staging_of(storage.root)
    still = {load.folder for load in found.open}
    folder = re.compile(re.escape(mine) + r"/(\d+)-[^/]+", re.ASCII)
    staged = {match[0]: int(match[1]) for info in source.list(mine, hidden=True) if (match := folder.match(info.path))}
    for path, aim in staged.items():
        if aim <= taken and path not in still:
            _clear(source, path)
    with suppress(StorageError):  # also what a program left that died while it removed files
        source.delete_empty(STAGING_FOLDER)


def _clear(source: Storage, folder: str) -> None:
    with suppress(StorageError):  # a task that lost writes there right now
        source.delete_folder(folder)


def _mark(storage: Storage, load: Load, mark: str) -> None:
    with suppress(AlreadyExists):
        storage.put_new(mark_path(load, mark), [metadata.encode({"number": load.number, "load_id": load.load_id})])


def _size(source: Storage, path: str) -> int | None:
    try:
        with source.open(path) as file:
            return file.size
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _is_same(source: Storage, file: AppendedFile) -> bool:
    """Whether what has the file's name is the file. Where the staged one is gone, who removed it has compared them."""
    if _size(source, file.path) != file.size:
        return False
    try:
        with source.open(file.staged) as staged, source.open(file.path) as found:
            return staged.size == found.size and all(one == two for one, two in _pieces(staged, found))
    except FileNotFoundError:
        return _size(source, file.path) == file.size


def _pieces(*files: OpenFile) -> Iterator[tuple[bytes, ...]]:
    size = files[0].size
    for begin in range(0, size, PIECE):
        yield tuple(file.read_range(begin, min(PIECE, size - begin)) for file in files)
