"""The records of loads and of batches: what they say, as JSON, and the names of all that is kept of a load."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from shadow import metadata
from shadow.errors import DamagedMetadata, NewerFormat, UsageError
from shadow.storage import Storage

LOADS_FOLDER = "_shadow/loads"
BATCHES_FOLDER = "_shadow/batches"
ORIGIN_PATH = f"{LOADS_FOLDER}/origin.json"
REJECTED_FOLDER = "_shadow/rejected"  # rows for the report of a load, in a folder <number>-<token> while it runs
STAGING_FOLDER = "_gnomon"  # of the source
APPENDED, DONE, VOID = "appended", "done", "void"  # marks
LOAD_NAME = re.compile(LOADS_FOLDER + r"/(\d{20})(?:\.json|-([^/]+)\.(appended|done|void))", re.ASCII)
FORMAT_VERSION = 1
LOST = "restore the file from a copy: without it cannot be told which rows were loaded"


@dataclass(frozen=True)
class AppendedFile:
    """A file of a load: where it was staged and the name it is to have, both below the source's root."""

    staged: str
    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Load:
    """The record of a load. `load_id` no other has; `parent` says after which load its rows were looked up (`Loads`);
    `content` is a digest of the batch; `folder` is where its files were staged; `counts` is the program's own."""

    number: int
    load_id: str
    parent: str
    batch: str
    content: str
    folder: str
    files: tuple[AppendedFile, ...]
    counts: Mapping[str, Any]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Batch:
    """What is known of a batch that was loaded: by which load, and the snapshot that indexes it."""

    load: Load
    snapshot: int


def load_path(number: int) -> str:
    return f"{LOADS_FOLDER}/{number:020d}.json"


def mark_path(load: Load, mark: str) -> str:
    """Where it is marked what became of a load: by number and id, so that no mark of another history is its."""
    return f"{LOADS_FOLDER}/{load.number:020d}-{load.load_id}.{mark}"


def batch_path(batch: str) -> str:
    """UsageError for what names no batch: an empty name would make one batch of all."""
    if not isinstance(batch, str) or not batch:
        raise UsageError(f"batch id: expected a text that is not empty, found {batch!r}")
    digest = hashlib.blake2b(batch.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"{BATCHES_FOLDER}/{digest.hexdigest()}.json"


def encode_load(load: Load) -> bytes:
    return metadata.encode(_with_version(_as_json(load)))


def encode_batch(load: Load, snapshot: int) -> bytes:
    return metadata.encode(_with_version({"load": _as_json(load), "snapshot": snapshot}))


def read_load(storage: Storage, number: int) -> Load:
    """DamagedMetadata where it is missing or broken, NewerFormat where a later version wrote it."""
    path = load_path(number)
    where = f"{storage.root}/{path}"
    try:
        content = metadata.read(storage, path, LOST)
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedMetadata(f"{where}: missing, though it was listed; {LOST}") from None
    load = _load_of(_versioned(content, where), where)
    if load.number != number:
        raise DamagedMetadata(f"{where} at byte 0: expected load {number}, found {load.number!r}; {LOST}")
    return load


def find_batch(storage: Storage, batch: str) -> Batch | None:
    """A batch that was loaded; None where it was not."""
    path = batch_path(batch)
    found = read_batch(storage, path)
    if found is not None and found.load.batch != batch:
        where = f"{storage.root}/{path}"
        raise DamagedMetadata(f"{where} at byte 0: expected batch {batch!r}, found {found.load.batch!r}; {LOST}")
    return found


def read_origin(storage: Storage) -> str:
    """The id of a log, which its first load names as its parent; empty before any load."""
    where = f"{storage.root}/{ORIGIN_PATH}"
    try:
        content = _versioned(metadata.read(storage, ORIGIN_PATH, LOST), where)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    _check_members(content, {"id"}, where)
    return str(content["id"])


def encode_origin(origin: str) -> bytes:
    return metadata.encode(_with_version({"id": origin}))


def read_batch(storage: Storage, path: str) -> Batch | None:
    """The record of a batch at a path; None where there is none."""
    where = f"{storage.root}/{path}"
    try:
        content = _versioned(metadata.read(storage, path, LOST), where)
    except (FileNotFoundError, NotADirectoryError):
        return None
    _check_members(content, {"load", "snapshot"}, where)
    load, snapshot = content["load"], content["snapshot"]
    if not isinstance(load, dict) or not isinstance(snapshot, int):
        raise DamagedMetadata(f"{where} at byte 0: not the record of a batch; {LOST}")
    return Batch(_load_of(load, where), snapshot)


def _with_version(content: dict[str, Any]) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, **content}


def _as_json(load: Load) -> dict[str, Any]:
    files = [asdict(file) for file in load.files]
    shown = {field.name: getattr(load, field.name) for field in fields(load)}
    return {**shown, "files": files, "counts": dict(load.counts)}


def _versioned(content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content without its version. NewerFormat where that is not this program's."""
    version = content.pop("format_version", None)
    if not isinstance(version, int):
        raise DamagedMetadata(f"{where} at byte 0: expected a format version, found {version!r}; {LOST}")
    if version > FORMAT_VERSION:
        raise NewerFormat(f"{where}: format version {version}, this program knows {FORMAT_VERSION}; upgrade it")
    return content


def _load_of(content: Mapping[str, Any], where: str) -> Load:
    _check_members(content, {field.name for field in fields(Load)}, where)
    named = {field.name for field in fields(AppendedFile)}
    for file in content["files"]:
        _check_members(file, named, where)
    files = tuple(AppendedFile(**file) for file in content["files"])
    load = Load(**{**content, "files": files})
    texts = [load.load_id, load.parent, load.batch, load.content, load.folder]
    texts += [text for file in files for text in (file.staged, file.path)]
    numbers = [load.number, *(number for file in files for number in (file.size, file.rows))]
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)):
        raise DamagedMetadata(f"{where} at byte 0: not the record of a load; {LOST}")
    return load


def _check_members(content: Mapping[str, Any], known: set[str], where: str) -> None:
    """NewerFormat for members that this program does not know, DamagedMetadata for others that are not there."""
    if more := sorted(content.keys() - known):
        raise NewerFormat(f"{where}: it has {', '.join(more)}, which this program does not know; upgrade it")
    if less := sorted(known - content.keys()):
        raise DamagedMetadata(f"{where} at byte 0: not the record that was written, {less[0]} is missing; {LOST}")
