"""The log of a Delta Lake table, read for some of its data files: their `add` actions with all members, which deltalake
does not give, and their deletion vectors. The protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""

import base64
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pyroaring import BitMap64

from gnomon.base.errors import Action, check_memory
from gnomon.base.readers import RangeFile
from gnomon.shadow.errors import ShadowError, StorageError
from gnomon.shadow.storage import Storage, below, in_order, is_absolute, join, source_storage, storage_at

Entry = dict[str, Any]  # the members of an action
LOG, CHECKPOINT_HINT = "_delta_log", "_last_checkpoint"
VECTOR_ONLY = ("path", "deletionVector")  # the members of an `add` that say which rows are deleted
NEAR = 200  # commits after a checkpoint that is named by the hint; further on, the log is listed for a newer one
CHECKPOINT = re.compile(
    rf"{LOG}/(?P<version>\d{{20}})\.checkpoint\.((?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.)?([-0-9a-f]{{36}}\.)?(json|parquet)"
)
SIDECARS = f"{LOG}/_sidecars"
PARSED = ("stats_parsed", "partitionValues_parsed")  # members of checkpoints that repeat others
DAMAGED = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError)

MAGIC, MAGIC_BYTES = 1681511377, 4  # of a vector in the portable form: a 64-bit Roaring bitmap follows
VERSION_OF_FILE = b"\x01"
COUNT_BYTES = 4  # before a vector in a file, and of the CRC after it
UUID_TEXT = 20  # characters of a UUID in Z85
# Z85 has the alphabet of Python's base 85 in another order.
_PYTHON = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_PYTHON, _Z85), bytes.maketrans(_Z85, _PYTHON)


def log_file(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def file_path(root: str, path: str) -> str:
    """The path of a data file relative to the root, or its whole location if it lies elsewhere, as in a shallow
    clone."""
    path = unquote(path)
    return below(root, storage_at(path).root) if is_absolute(path) or path.startswith("file:") else path


def read_commit(storage: Storage, version: int) -> list[Entry]:
    """The actions of a version. StorageError, with the file's name, where it is gone or damaged."""
    return _actions(storage, log_file(version))


def read_adds(
    storage: Storage, version: int, paths: Collection[str], members: Collection[str] | None = None
) -> dict[str, Entry]:
    """The `add` actions of live data files at a version, by path as `LakeContent.files` has it, with all members or
    some. Only as much of the log is read as has them. StorageError where a file is not live there, or a file of the log
    is gone or damaged."""
    root, wanted, found = storage.root, set(paths), dict[str, Entry]()
    begin, checkpoint = _newest_checkpoint(storage, version)
    numbers = range(version, begin, -1) if wanted else ()
    for number, actions in zip(numbers, in_order([partial(read_commit, storage, one) for one in numbers]), strict=True):
        with _reading(storage, log_file(number)):
            adds = [_only(one["add"], members) for one in actions if one.get("add")]
            added = {file_path(root, one["path"]): one for one in adds}
            removed = {file_path(root, one["remove"]["path"]) for one in actions if one.get("remove")}
        _check_live(storage, version, wanted & (removed - added.keys()))
        found.update((path, added[path]) for path in wanted & added.keys())
        wanted -= added.keys()
        if not wanted:
            return found
    read = partial(_of_checkpoint, storage, wanted=wanted, members=members)
    for listed, sidecars in in_order([partial(read, file) for file in checkpoint if wanted]):
        found.update(listed)
        for more, _ in in_order([partial(read, file) for file in sidecars]):
            found.update(more)
    _check_live(storage, version, set(paths) - found.keys())
    return found


def _check_live(storage: Storage, version: int, gone: Collection[str]) -> None:
    if gone:
        what = f"expected to be a live file of version {version} of the table, whose log does not have it"
        raise StorageError(what, join(storage.root, min(gone)), action=Action.RUN_AGAIN_OR_REPAIR)


def _newest_checkpoint(storage: Storage, version: int) -> tuple[int, Sequence[str]]:
    """The version and the files of the newest checkpoint up to a version; -1 where there is none."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, LookupError, TypeError, AttributeError):
        hint = json.loads(storage.read(f"{LOG}/{CHECKPOINT_HINT}"))  # damaged, it is only no help
        if 0 <= version - int(hint["version"]) <= NEAR:
            begin = f"{int(hint['version']):020d}.checkpoint"
            names = [f"{begin}.parquet"]
            if parts := hint.get("parts"):
                names = [f"{begin}.{part + 1:010d}.{parts:010d}.parquet" for part in range(parts)]
            if other := hint.get("v2Checkpoint"):
                names = [unquote(other["path"]).rpartition("/")[2]]
            files = [f"{LOG}/{name}" for name in names]
            for file in files:
                storage.open(file).close()
            return int(hint["version"]), files
    found: dict[int, dict[str, list[str]]] = {}
    for info in storage.list(LOG, hidden=True):
        match = CHECKPOINT.fullmatch(info.path)
        if match and int(match["version"]) <= version:
            found.setdefault(int(match["version"]), {}).setdefault(match["parts"] or "1", []).append(info.path)
    for number in sorted(found, reverse=True):
        for parts, files in found[number].items():
            if parts == "1" or len(files) == int(parts):
                return number, files[-1:] if parts == "1" else files
    return -1, ()


def _only(add: Entry, members: Collection[str] | None) -> Entry:
    return add if members is None else {name: add[name] for name in members if name in add}


def _of_checkpoint(
    storage: Storage, path: str, wanted: Collection[str], members: Collection[str] | None
) -> tuple[dict[str, Entry], list[str]]:
    """The wanted entries in a file of a checkpoint, and the files that it names as its parts."""
    with _reading(storage, path):
        if path.endswith(".json"):
            actions = _actions(storage, path)
            adds: Iterable[Entry] = (_only(one["add"], members) for one in actions if one.get("add"))
            names = [one["sidecar"]["path"] for one in actions if one.get("sidecar")]
        else:
            adds, names = _of_parquet(storage, path, wanted, members)
        entries = {file_path(storage.root, one["path"]): one for one in adds}
        sidecars = [f"{SIDECARS}/{unquote(name).rpartition('/')[2]}" for name in names]
    return {name: entry for name, entry in entries.items() if name in wanted}, sidecars


def _of_parquet(
    storage: Storage, path: str, wanted: Collection[str], members: Collection[str] | None
) -> tuple[list[Entry], list[str]]:
    """As `_of_checkpoint`, without sizes of the parsed members in memory: the entries, and the names of sidecars."""
    adds, names, wanted = list[Entry](), list[str](), set(wanted)
    with storage.open(path) as reader:
        file = pq.ParquetFile(RangeFile(reader))
        kind = file.schema_arrow.field("add").type if "add" in file.schema_arrow.names else pa.struct([])
        columns = [f"add.{one.name}" for one in kind if one.name not in PARSED and (not members or one.name in members)]
        if not members and "stats_parsed" in kind.names and "numRecords" in kind.field("stats_parsed").type.names:
            columns.append("add.stats_parsed.numRecords")
        for group in range(file.num_row_groups):
            short = file.read_row_group(group, columns=["add.path", "sidecar.path"])
            listed, parts = (
                pc.struct_field(short[name], "path").to_pylist() if name in short.column_names else ()
                for name in ("add", "sidecar")
            )
            names += [name for name in parts if name is not None]
            hits = [i for i, one in enumerate(listed) if one is not None and file_path(storage.root, one) in wanted]
            if hits:
                rows = file.read_row_group(group, columns=columns)["add"].take(hits)
                adds += [_plain(row, rows.type) for row in rows.to_pylist()]
    for add in adds:
        records = add.pop("stats_parsed", {}).get("numRecords")
        if "stats" not in add and records is not None:
            add["stats"] = json.dumps({"numRecords": records})
    return adds, names


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow as JSON has it: a struct without its nulls, and a map as an object."""
    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind if value[field.name] is not None}
    if types.is_map(kind):
        return {key: _plain(one, kind.item_type) for key, one in value}
    return value


def _actions(storage: Storage, path: str) -> list[Entry]:
    with _reading(storage, path):
        actions = [json.loads(line) for line in storage.read(path).splitlines() if line.strip()]
        if not all(isinstance(action, dict) for action in actions):
            raise ValueError("a line is not a JSON object")
    return actions


@contextmanager
def _reading(storage: Storage, path: str) -> Iterator[None]:
    """Raise errors in a file of the log, or of vectors, with its name."""
    where = join(storage.root, path)
    try:
        yield
    except ShadowError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError("this file of the table is gone", where, action=Action.RUN_AGAIN_OR_REPAIR) from None
    except DAMAGED as error:
        check_memory(error)
        raise StorageError(f"damaged ({error})", where, action=Action.RUN_AGAIN_OR_REPAIR) from error


def with_wide_bounds(stats: str | None, records: int) -> str:
    """The statistics of a file that has a deletion vector and `records` rows with the deleted ones. Other numbers stay
    as they are written, with all their digits."""
    mark = f"{uuid4().hex}:"
    kept = json.loads(stats or "{}", parse_float=lambda text: mark + text, parse_constant=lambda text: mark + text)
    text = json.dumps({**kept, "numRecords": records, "tightBounds": False})
    return re.sub(rf'"{mark}([^"]*)"', r"\1", text)


def records_of(add: Mapping[str, Any]) -> int | None:
    """The rows of a file with the deleted ones, from its statistics; None where they do not say."""
    found = json.loads(add.get("stats") or "{}").get("numRecords")
    return None if found is None else int(found)


# -- deletion vectors --------------------------------------------------------------------------------------------------


class VectorFile(NamedTuple):
    """A new file of vectors: its path, its bytes, and the descriptor of each vector."""

    path: str
    chunks: list[bytes]
    descriptors: list[Entry]


def vector_path(folder: str, token: UUID) -> str:
    return f"{folder}/deletion_vector_{token}.bin"


def vector_file(folder: str, token: UUID, vectors: Iterable[BitMap64]) -> VectorFile:
    """The file of some vectors in a folder below the root, whose name has letters and digits only: Trino takes no
    other."""
    chunks, descriptors, offset = [VERSION_OF_FILE], list[Entry](), len(VERSION_OF_FILE)
    name = folder + base64.b85encode(token.bytes).translate(_TO_Z85).decode()
    for rows in vectors:
        data = MAGIC.to_bytes(MAGIC_BYTES, "little") + rows.serialize()
        chunks += [len(data).to_bytes(COUNT_BYTES, "big"), data, zlib.crc32(data).to_bytes(COUNT_BYTES, "big")]
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": name,
                "offset": offset,
                "sizeInBytes": len(data),
                "cardinality": len(rows),
            }
        )
        offset += len(data) + 2 * COUNT_BYTES
    return VectorFile(vector_path(folder, token), chunks, descriptors)


def read_vectors(storage: Storage, adds: Mapping[str, Entry]) -> dict[str, BitMap64]:
    """The deleted rows of each file that has a deletion vector, from the `add` actions of files by path. A file of
    vectors is opened once. StorageError for a vector that is gone or damaged."""
    found, by_file = dict[str, BitMap64](), dict[str, list[tuple[str, Entry]]]()
    for name, add in adds.items():
        if described := add.get("deletionVector"):
            with _reading(storage, name):
                kind, place = described["storageType"], described["pathOrInlineDv"]
                if kind == "i":
                    data = base64.b85decode(place.encode().translate(_FROM_Z85))[: described["sizeInBytes"]]
                    found[name] = _rows_of(data, described)
                else:
                    by_file.setdefault(_path_of_vector(storage.root, kind, place), []).append((name, described))
    for vectors in in_order([partial(_of_file, storage, path, listed) for path, listed in by_file.items()]):
        found.update(vectors)
    return found


def _of_file(storage: Storage, path: str, listed: Sequence[tuple[str, Entry]]) -> list[tuple[str, BitMap64]]:
    """The vectors of some data files that lie in a file of vectors."""
    with _reading(storage, path), source_storage(storage.root).open(path) as file:
        begins = [one.get("offset", len(VERSION_OF_FILE)) for _, one in listed]
        sizes = [one["sizeInBytes"] for _, one in listed]
        ranges = [(begin, size + 2 * COUNT_BYTES) for begin, size in zip(begins, sizes, strict=True)]
        version, *chunks = file.read_ranges([(0, len(VERSION_OF_FILE)), *ranges])
        if version != VERSION_OF_FILE:
            raise ValueError(f"a file of version {version!r}, expected {VERSION_OF_FILE!r}")
        found = []
        for (name, described), begin, chunk in zip(listed, begins, chunks, strict=True):
            data, checksum = chunk[COUNT_BYTES:-COUNT_BYTES], chunk[-COUNT_BYTES:]
            if (size := int.from_bytes(chunk[:COUNT_BYTES], "big")) != len(data):
                raise ValueError(f"a vector of {size} bytes at {begin}, expected {len(data)}")
            if zlib.crc32(data).to_bytes(COUNT_BYTES, "big") != checksum:
                raise ValueError(f"a vector at {begin} has another CRC")
            found.append((name, _rows_of(data, described)))
    return found


def _rows_of(data: bytes, described: Entry) -> BitMap64:
    if int.from_bytes(data[:MAGIC_BYTES], "little") != MAGIC:
        raise ValueError("a deletion vector of another form")
    rows = BitMap64.deserialize(data[MAGIC_BYTES:])
    if len(rows) != described["cardinality"]:
        raise ValueError(f"a deletion vector of {len(rows)} rows, expected {described['cardinality']}")
    return rows


def _path_of_vector(root: str, kind: str, place: str) -> str:
    if kind == "p":
        return file_path(root, place)
    if kind != "u":
        raise ValueError(f"a deletion vector of the unknown storage type {kind!r}")
    prefix, token = place[:-UUID_TEXT], place[-UUID_TEXT:]
    name = vector_path(prefix, UUID(bytes=base64.b85decode(token.encode().translate(_FROM_Z85))))
    return name.lstrip("/") if not prefix else name
