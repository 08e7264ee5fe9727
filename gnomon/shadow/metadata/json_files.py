"""JSON files below `_shadow/`, with a checksum of their content, so that a flipped byte is noticed."""

import json
import zlib
from functools import partial
from typing import Any

from gnomon.base.errors import Action
from gnomon.shadow.errors import DamagedMetadata
from gnomon.shadow.storage import Storage, looked_twice

CHECKSUM = "crc32"  # of the content's canonical JSON: sorted keys, no spaces, UTF-8


def checksum(content: dict[str, Any]) -> int:
    """The checksum of a file's content, which does not depend on its white space."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def encode(content: dict[str, Any]) -> bytes:
    """A file's bytes: readable JSON with the checksum as its last member."""
    text = json.dumps({**content, CHECKSUM: checksum(content)}, indent=1, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def read(storage: Storage, path: str, action: Action = Action.BUILD_FULL) -> dict[str, Any]:
    """The content of a metadata file. FileNotFoundError where there is none; DamagedMetadata, with the action, where it
    is damaged, twice."""
    return looked_twice(storage, partial(_read, storage, path, action), (DamagedMetadata,))


def _read(storage: Storage, path: str, action: Action) -> dict[str, Any]:
    where = f"{storage.root}/{path}"
    try:
        data = storage.read(path)
    except IsADirectoryError:
        raise DamagedMetadata("a folder, expected a file", where, action=action) from None
    try:
        content = json.loads(data.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise _damaged(where, _offset(error), "not the JSON that was written", action) from None
    if not isinstance(content, dict) or content.pop(CHECKSUM, None) != checksum(content):
        raise _damaged(where, 0, "the checksum does not match the content", action)
    return content


def _offset(error: ValueError) -> int:
    """The offset of the first byte that is not JSON, if the error has it."""
    if isinstance(error, UnicodeDecodeError):
        return error.start
    if isinstance(error, json.JSONDecodeError):
        return len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    return 0


def _damaged(where: str, offset: int, what: str, action: Action) -> DamagedMetadata:
    return DamagedMetadata(what, where, offset, action=action)
