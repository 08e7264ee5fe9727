"""The log of appends: each append to the source is on record before any of its rows can be seen.

An append stages its files where no engine looks, then puts its record under the next number, create-only: this put is
its commit. If another append commits between the look-up of its rows and its own commit, it finds the number taken, and
looks its rows up again. So two racing appends never add the same key. If a program dies after its commit, the next one
finishes its append: it gives the files their names, writes a mark for this step, indexes the files, and puts the record
of the batch. There is no lease and no clock.

The index in which an append looks its rows up must be as new as the log whose `parent` it names: read the log first.

Records form a chain: each names the one before it as its parent, the first one the log's origin. An append whose parent
is not the append before it looked its rows up in an index that was since deleted and built again. It is **void**: its
files are never moved into the source. The records alone decide this, so that all programs agree.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from gnomon.base.errors import Action
from gnomon.shadow.errors import AlreadyExists, ConcurrentCommit, DamagedMetadata, StorageError, Unreachable
from gnomon.shadow.metadata import (
    APPEND_NAME,
    APPENDED,
    APPENDS_FOLDER,
    DONE,
    ORIGIN_PATH,
    REJECTED_FOLDER,
    STAGING_FOLDER,
    VOID,
    Append,
    AppendedFile,
    Batch,
    append_path,
    batch_path,
    encode_append,
    encode_batch,
    encode_mark,
    encode_origin,
    find_append,
    find_batch,
    has_mark,
    mark_path,
    read_append,
    read_origin,
)
from gnomon.shadow.storage import OpenFile, Storage
from gnomon.shadow.tables import TableCommit, last_number

__all__ = [
    "REJECTED_FOLDER",
    "Append",
    "AppendLog",
    "AppendedFile",
    "Batch",
    "abandon",
    "commit_append",
    "find_batch",
    "is_abandoned",
    "is_appended",
    "mark_appended",
    "move_files",
    "open_log",
    "plan_commit",
    "read_log",
    "settle",
    "staging_folder",
    "sweep",
]

PIECE = 8 << 20  # bytes of each of two files, compared at a time


@dataclass(frozen=True)
class AppendLog:
    """The log of an index. `last` is the number of its last append, 0 if there is none; the next one names `parent` as
    its parent; `open` are the unfinished appends, in order, without the `void` ones. `marks` are the missing marks,
    which `open_log` writes. `has_origin`: the log has an id that distinguishes it from the log of an earlier index."""

    last: int
    parent: str
    open: tuple[Append, ...]
    void: frozenset[int]
    marks: tuple[tuple[Append, str], ...] = ()
    has_origin: bool = True


@dataclass(frozen=True)
class _Names:
    """The numbers of the records in a listing, and the marks of each: (id, mark)."""

    records: frozenset[int]
    marks: dict[int, set[tuple[str, str]]]

    def is_closed(self, number: int) -> bool:
        return any(mark in (DONE, VOID) for _, mark in self.marks.get(number, ()))

    @cached_property
    def last(self) -> int:
        """The last number before a gap. A program of another history put the records after the gap."""
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
    """The folder, below the source's root, in which an append stages its files before it takes a number."""
    return f"{_staging_of(index_root)}/{number}-{token}"


def _staging_of(index_root: str) -> str:
    return f"{STAGING_FOLDER}/{hashlib.blake2b(index_root.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def open_log(storage: Storage) -> AppendLog:
    """The log, after missing marks and, before the first append, the log's origin were written. An append whose batch
    is on record is finished, even if its files are gone."""
    found = read_log(storage)
    if not found.has_origin:
        with suppress(AlreadyExists):
            storage.put_new(ORIGIN_PATH, [encode_origin(secrets.token_hex(8))])
        found = read_log(storage)
    for append, mark in found.marks:
        _mark(storage, append, mark)
    return found


def read_log(storage: Storage) -> AppendLog:
    """The log, without writing. DamagedMetadata where the record of a finished append is gone."""
    names = _names(storage)
    last = names.last
    for number in sorted(names.records):
        if number > last and names.is_closed(number) and _closing(names, read_append(storage, number)):
            where = f"{storage.root}/{append_path(last + 1)}"
            raise DamagedMetadata(
                f"missing, though append {number} was finished after it", where, action=Action.RESTORE_RECORD
            )
    parent, begin = _begin(storage, names)
    has_origin = bool(parent)
    left, marks, void = list[Append](), list[tuple[Append, str]](), set(names.void)
    for append in (read_append(storage, number) for number in range(begin, names.last + 1)):
        closing = _closing(names, append)
        if closing is None:
            closing = VOID if append.parent != parent else DONE if _is_known(storage, append) else None
            if closing is None:
                left.append(append)
            else:
                marks.append((append, closing))
        void = void | {append.number} if closing == VOID else void - {append.number}
        parent = _link(append, closing)
    return AppendLog(last, parent, tuple(left), frozenset(void), tuple(marks), has_origin)


def _begin(storage: Storage, names: _Names) -> tuple[str, int]:
    """The number of the first append that may be open, and its parent. All appends before it are closed. A mark may
    belong to an earlier index, so the last one is compared with its record."""
    begin = next((number for number in range(1, names.last + 1) if not names.is_closed(number)), names.last + 1)
    while begin > 1:
        before = read_append(storage, begin - 1)
        if closing := _closing(names, before):
            return _link(before, closing), begin
        begin -= 1
    return read_origin(storage), 1


def _names(storage: Storage) -> _Names:
    records, marks = set[int](), dict[int, set[tuple[str, str]]]()
    for info in storage.list(APPENDS_FOLDER, witness=ORIGIN_PATH):
        if match := APPEND_NAME.fullmatch(info.path):
            if match[3]:
                marks.setdefault(int(match[1]), set()).add((match[2], match[3]))
            else:
                records.add(int(match[1]))
    return _Names(frozenset(records), marks)


def _closing(names: _Names, append: Append) -> str | None:
    """The mark with which an append ended, if any."""
    marks = names.marks.get(append.number, ())
    return next((mark for mark in (VOID, DONE) if (append.append_id, mark) in marks), None)


def _link(append: Append, closing: str | None) -> str:
    """The parent that the next append names. An append that took a void append for a valid one is void, too."""
    return f"void:{append.append_id}" if closing == VOID else append.append_id


def _is_known(storage: Storage, append: Append) -> bool:
    known = find_batch(storage, append.batch)
    return known is not None and known.append.append_id == append.append_id


def plan_commit(storage: Storage, number: int, name: str, uuid: str, aside: str = "") -> TableCommit:
    """The commit of the next append to a lake table, still without partitions. Its number is higher than that of every
    commit of this index in the table, and than that of the append before it, which may be void: a number tells one
    append. An index that was copied, or deleted and built again, is another writer."""
    place = hashlib.blake2b(storage.root.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    writer = ".".join(filter(None, ["gnomon", read_origin(storage), place, aside]))
    before = read_append(storage, number - 1).table if number > 1 else None
    planned = before.number if before is not None and before.writer == writer else 0
    return TableCommit(name, uuid, writer, max(last_number(name, uuid, writer), planned) + 1, ())


def commit_append(storage: Storage, append: Append) -> bool:
    """Commit an append; return whether the number was free. ConcurrentCommit if the index was deleted and built again
    after the append's rows were looked up: the append is void."""
    batch_path(append.batch)  # UsageError for an invalid batch id
    try:
        storage.put_new(append_path(append.number), [encode_append(append)])
    except AlreadyExists:
        if read_append(storage, append.number).append_id != append.append_id:
            return False
    found = open_log(storage)
    recorded = find_append(storage, append.number)
    if recorded is None or append.number > found.last or append.number in found.void:
        raise _was_rebuilt(storage, append)
    return recorded.append_id == append.append_id  # a store may say yes to two puts of a name


def _was_rebuilt(storage: Storage, append: Append) -> ConcurrentCommit:
    return ConcurrentCommit(
        f"the index was deleted and built again while append {append.number} of batch {append.batch!r} "
        "ran; the append is void",
        storage.root,
        action=Action.RUN_AGAIN,
    )


def _check_on_record(storage: Storage, append: Append) -> None:
    """ConcurrentCommit where the record of the append's number is missing or of another append."""
    recorded = find_append(storage, append.number)
    if recorded is None or recorded.append_id != append.append_id:
        raise _was_rebuilt(storage, append)


def move_files(storage: Storage, source: Storage, append: Append) -> bool:
    """Move the append's files to their final names, except files that have them already. Several programs may do so at
    once. Returns False if the append is marked as appended, else True. Files of an append that is marked as appended
    stay untouched, since their owner may have removed them. StorageError where a file has neither name;
    ConcurrentCommit where the index was deleted and built again."""
    if is_appended(storage, append):
        return False
    _check_on_record(storage, append)
    for file in append.files:
        try:
            _move(source, file)
        except (FileNotFoundError, AlreadyExists) as error:
            if is_appended(storage, append):  # another program did it, and files changed since
                return False
            if isinstance(error, AlreadyExists):
                raise
            raise StorageError(
                f"missing, and so is {file.path}, its final name: "
                f"{file.rows} rows that append {append.number} of batch {append.batch!r} adds "
                f"(its record: {storage.root}/{append_path(append.number)})",
                f"{source.root}/{file.staged}",
                action=Action.RESTORE_APPEND,
            ) from None
    return True


def _move(source: Storage, file: AppendedFile) -> None:
    """Move one file. FileNotFoundError where it has neither name, AlreadyExists where another file has its new name."""
    try:
        source.move_new(file.staged, file.path)
    except FileNotFoundError:
        if _size(source, file.path) != file.size:
            raise
    except AlreadyExists:
        if not _is_same(source, file):
            raise
        source.delete(file.staged)  # it had both names when a program died


def is_appended(storage: Storage, append: Append) -> bool:
    """Whether an append's files have their names, and those of a lake table are in the table."""
    return any(has_mark(storage, append, mark) for mark in (APPENDED, DONE)) or _is_known(storage, append)


def is_abandoned(storage: Storage, append: Append) -> bool:
    """Whether a program ended an append by `abandon`."""
    return has_mark(storage, append, VOID)


def mark_appended(storage: Storage, append: Append) -> None:
    """Mark an append as appended: all its files have their names and are never moved again. ConcurrentCommit where the
    index was deleted and built again."""
    _check_on_record(storage, append)
    _mark(storage, append, APPENDED)


def abandon(storage: Storage, source: Storage, append: Append) -> None:
    """End an append that can never be finished: mark it as void, so that its batch can be appended again, and remove
    its staged files. Files that have their final names stay: another program may be about to use them."""
    _check_on_record(storage, append)
    _mark(storage, append, VOID)
    _clear(source, append.folder)


def settle(storage: Storage, source: Storage, append: Append, snapshot: int) -> None:
    """Mark an append as finished: its batch is known from now on. Then remove its staging folder and the staging
    folders of appends that lost. ConcurrentCommit where the index was deleted and built again."""
    _check_on_record(storage, append)
    _put_kept(storage, batch_path(append.batch), encode_batch(append, snapshot))
    _mark(storage, append, DONE)
    _clear(source, append.folder)
    sweep(storage, source, append.number)


def sweep(storage: Storage, source: Storage, number: int) -> None:
    """Remove the staged files of appends that can never commit: their number, `number` or less, is taken. Several
    programs may do so at once. The next one removes what this one cannot."""
    mine = _staging_of(storage.root)
    folder = re.compile(re.escape(mine) + r"/(\d+)-[^/]+", re.ASCII)
    staged = {match[0]: int(match[1]) for info in source.list(mine, hidden=True) if (match := folder.match(info.path))}
    # The log is read after the folders are listed. If the index is deleted and built again between the two, its numbers
    # begin again. A folder of the new index would then look like one of the old.
    found = open_log(storage)
    taken = min(number, found.last)
    still = {append.folder for append in found.open}
    for path, aim in staged.items():
        if aim <= taken and path not in still:
            _clear(source, path)
    with suppress(StorageError):  # also files left by a program that died during this removal
        source.delete_empty(STAGING_FOLDER)


def _clear(source: Storage, folder: str) -> None:
    with suppress(StorageError):  # a task of an append that lost may write there now
        source.delete_folder(folder)


def _mark(storage: Storage, append: Append, mark: str) -> None:
    _put_kept(storage, mark_path(append, mark), encode_mark(append))


def _put_kept(storage: Storage, path: str, data: bytes) -> None:
    """Put a file that another program may have put before. Unreachable where the store says twice that it has it, and
    does not."""
    for _ in range(2):
        with suppress(AlreadyExists):
            storage.put_new(path, [data])
        with suppress(FileNotFoundError, NotADirectoryError):
            storage.read(path)
            return
    raise Unreachable(
        "the store took this file and does not have it", f"{storage.root}/{path}", action=Action.RUN_AGAIN
    )


def _size(source: Storage, path: str) -> int | None:
    try:
        with source.open(path) as file:
            return file.size
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _is_same(source: Storage, file: AppendedFile) -> bool:
    """Whether the file at the final name is this file. Where the staged file is gone, the program that removed it has
    compared them."""
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
