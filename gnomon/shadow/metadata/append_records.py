"""The records of appends and of batches: their JSON, and the paths of the files of an append."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedMetadata, NewerFormat, UsageError
from gnomon.shadow.metadata import json_files
from gnomon.shadow.storage import Storage
from gnomon.shadow.tables import PlannedChange, TableCommit

# On disk an append is called a load, as in the first versions. The names stay, so that every version reads the records.
APPENDS_FOLDER = "_shadow/loads"
APPEND_MEMBER, ID_MEMBER = "load", "load_id"
BATCHES_FOLDER = "_shadow/batches"
ORIGIN_PATH = f"{APPENDS_FOLDER}/origin.json"
REJECTED_FOLDER = "_shadow/rejected"  # rows for the report of an append, in a folder <number>-<token> while it runs
STAGING_FOLDER = "_gnomon"  # of the source
APPENDED, DONE, VOID = "appended", "done", "void"  # marks
APPEND_NAME = re.compile(APPENDS_FOLDER + r"/(\d{20})(?:\.json|-([^/]+)\.(appended|done|void))", re.ASCII)
FORMAT_VERSION = 1


@dataclass(frozen=True)
class AppendedFile:
    """A file of an append: its staged path and its final path, both below the source's root."""

    staged: str
    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Append:
    """The record of an append. No other append has its `append_id`. `parent` names the append after which its rows were
    looked up (`AppendLog`). `content` is a digest of the batch, `folder` the staging folder of its files. The program
    that appends sets `counts`. `table` is the planned commit to a lake table; None for files in folders."""

    number: int
    append_id: str
    parent: str
    batch: str
    content: str
    folder: str
    files: tuple[AppendedFile, ...]
    counts: Mapping[str, Any]
    table: TableCommit | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Batch:
    """The record of a batch: the append that wrote its rows, and the snapshot that indexes them."""

    append: Append
    snapshot: int


def append_path(number: int) -> str:
    return f"{APPENDS_FOLDER}/{number:020d}.json"


def mark_path(append: Append, mark: str) -> str:
    """The path of a mark. It has the number and the id of the append, so that a mark of another history does not
    match."""
    return f"{APPENDS_FOLDER}/{append.number:020d}-{append.append_id}.{mark}"


def encode_mark(append: Append) -> bytes:
    return json_files.encode({"number": append.number, ID_MEMBER: append.append_id})


def has_mark(storage: Storage, append: Append, mark: str) -> bool:
    """Whether an append has a mark. Its content is read: that a store answers to the name alone proves nothing.
    DamagedMetadata where it is not this mark."""
    path = mark_path(append, mark)
    try:
        content = json_files.read(storage, path, Action.RESTORE_RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if content.get(ID_MEMBER) != append.append_id:
        raise DamagedMetadata(
            "",
            f"{storage.root}/{path}",
            0,
            action=Action.RESTORE_RECORD,
            expected=f"the mark of append {append.append_id}",
            found=repr(content.get(ID_MEMBER)),
        )
    return True


def batch_path(batch: str) -> str:
    """The path of a batch's record. UsageError unless the batch is named: an empty name would make all batches one."""
    if not isinstance(batch, str) or not batch:
        raise UsageError(f"batch id: expected a text that is not empty, found {batch!r}")
    digest = hashlib.blake2b(batch.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"{BATCHES_FOLDER}/{digest.hexdigest()}.json"


def encode_append(append: Append) -> bytes:
    return json_files.encode(_with_version(_as_json(append)))


def encode_batch(append: Append, snapshot: int) -> bytes:
    return json_files.encode(_with_version({APPEND_MEMBER: _as_json(append), "snapshot": snapshot}))


def read_append(storage: Storage, number: int) -> Append:
    """The record of an append. DamagedMetadata where it is missing or broken, NewerFormat where a later version wrote
    it."""
    append = find_append(storage, number)
    if append is None and storage.is_remote:  # a store may answer wrongly once
        append = find_append(storage, number)
    if append is None:
        where = f"{storage.root}/{append_path(number)}"
        raise DamagedMetadata("missing, though it was listed", where, action=Action.RESTORE_RECORD)
    return append


def find_append(storage: Storage, number: int) -> Append | None:
    """The record of an append, None where there is none. DamagedMetadata, NewerFormat as in `read_append`."""
    path = append_path(number)
    where = f"{storage.root}/{path}"
    try:
        content = json_files.read(storage, path, Action.RESTORE_RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    append = _append_of(_versioned(content, where), where)
    if append.number != number:
        raise DamagedMetadata(
            "", where, 0, action=Action.RESTORE_RECORD, expected=f"append {number}", found=repr(append.number)
        )
    return append


def find_batch(storage: Storage, batch: str) -> Batch | None:
    """The record of a batch; None if it was never appended."""
    path = batch_path(batch)
    found = read_batch(storage, path)
    if found is not None and found.append.batch != batch:
        where = f"{storage.root}/{path}"
        raise DamagedMetadata(
            "", where, 0, action=Action.RESTORE_RECORD, expected=f"batch {batch!r}", found=repr(found.append.batch)
        )
    return found


def read_origin(storage: Storage) -> str:
    """The id of a log, which its first append names as its parent; empty before any append."""
    where = f"{storage.root}/{ORIGIN_PATH}"
    try:
        content = _versioned(json_files.read(storage, ORIGIN_PATH, Action.RESTORE_RECORD), where)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    _check_members(content, {"id"}, where)
    return str(content["id"])


def encode_origin(origin: str) -> bytes:
    return json_files.encode(_with_version({"id": origin}))


def read_batch(storage: Storage, path: str) -> Batch | None:
    """The record of a batch at a path; None where there is none."""
    where = f"{storage.root}/{path}"
    try:
        content = _versioned(json_files.read(storage, path, Action.RESTORE_RECORD), where)
    except (FileNotFoundError, NotADirectoryError):
        return None
    _check_members(content, {APPEND_MEMBER, "snapshot"}, where)
    append, snapshot = content[APPEND_MEMBER], content["snapshot"]
    if not isinstance(append, dict) or not isinstance(snapshot, int):
        raise DamagedMetadata("not the record of a batch", where, 0, action=Action.RESTORE_RECORD)
    return Batch(_append_of(append, where), snapshot)


def _with_version(content: dict[str, Any]) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, **content}


def _as_json(append: Append) -> dict[str, Any]:
    files = [asdict(file) for file in append.files]
    shown = {_member(field.name): getattr(append, field.name) for field in fields(append)}
    table = {} if append.table is None else {"table": asdict(append.table)}
    if append.table is not None and append.table.change is None:  # as before there were changes
        del table["table"]["change"]
    return {name: value for name, value in shown.items() if name != "table"} | {
        "files": files,
        "counts": dict(append.counts),
        **table,
    }


def _member(name: str) -> str:
    """The JSON member of a field."""
    return ID_MEMBER if name == "append_id" else name


def _versioned(content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content without its version. NewerFormat where the version is not this program's."""
    version = content.pop("format_version", None)
    if not isinstance(version, int):
        raise DamagedMetadata(
            "", where, 0, action=Action.RESTORE_RECORD, expected="a format version", found=repr(version)
        )
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"format version {version}, this program knows {FORMAT_VERSION}", where, action=Action.UPGRADE
        )
    return content


def _append_of(content: Mapping[str, Any], where: str) -> Append:
    members = {_member(field.name) for field in fields(Append)}
    _check_members(content, members if "table" in content else members - {"table"}, where)
    of_file = {field.name for field in fields(AppendedFile)}
    for file in content["files"]:
        _check_members(file, of_file, where)
    files = tuple(AppendedFile(**file) for file in content["files"])
    named: dict[str, Any] = {field.name: content.get(_member(field.name)) for field in fields(Append)}
    append = Append(**named | {"files": files, "table": _table_of(content.get("table"), len(files), where)})
    texts = [append.append_id, append.parent, append.batch, append.content, append.folder]
    texts += [text for file in files for text in (file.staged, file.path)]
    numbers = [append.number, *(number for file in files for number in (file.size, file.rows))]
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)):
        raise DamagedMetadata("not the record of an append", where, 0, action=Action.RESTORE_RECORD)
    return append


def _table_of(content: object, files: int, where: str) -> TableCommit | None:
    """The planned commit of `files` files to a lake table; None if the append has none."""
    if content is None:
        return None
    damaged = DamagedMetadata("not the commit of an append to a table", where, 0, action=Action.RESTORE_RECORD)
    if not isinstance(content, dict):
        raise damaged
    known = {field.name for field in fields(TableCommit)}
    _check_members(content, known if "change" in content else known - {"change"}, where)
    change = content.get("change")
    if change is not None:
        if not isinstance(change, dict):
            raise damaged
        _check_members(change, {field.name for field in fields(PlannedChange)}, where)
        if not isinstance(change["key_files"], list) or not all(isinstance(one, str) for one in change["key_files"]):
            raise damaged
        change = PlannedChange(tuple(change["key_files"]), bool(change["inserts"]), bool(change["replaces_all"]))
    partitions = content["partitions"]
    if not isinstance(partitions, list) or len(partitions) != files:
        raise damaged
    texts = [*partitions, content["name"], content["uuid"], content["writer"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(content["number"], int):
        raise damaged
    return TableCommit(**{**content, "partitions": tuple(partitions), "change": change})


def _check_members(content: Mapping[str, Any], known: set[str], where: str) -> None:
    """NewerFormat for members that this program does not know, DamagedMetadata for missing ones."""
    if more := sorted(content.keys() - known):
        raise NewerFormat(f"it has {', '.join(more)}, which this program does not know", where, action=Action.UPGRADE)
    if less := sorted(known - content.keys()):
        raise DamagedMetadata(
            f"not the record that was written, {less[0]} is missing", where, 0, action=Action.RESTORE_RECORD
        )
