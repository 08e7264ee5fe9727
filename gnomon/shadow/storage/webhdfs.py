"""HDFS, over WebHDFS: the HTTP of the namenode and the datanodes, so that no Java and no Hadoop is needed.

A put writes a `_staged-` file, closes it, and renames it without overwrite. HDFS shows a name before its bytes, so a
direct create would not be whole, and would stay unfinished if the writer died. The file keeps its number when it is
renamed, which shows whether a rename with a lost reply, or an older gateway's "true", succeeded.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from gnomon.base.errors import Action
from gnomon.shadow.errors import AlreadyExists, FileChanged, StorageError
from gnomon.shadow.storage.concurrency import in_order
from gnomon.shadow.storage.contract import STAGED, FileInfo, Hidden, ReadStats, difference, is_skipped
from gnomon.shadow.storage.remote_file import Range, RemoteFile
from gnomon.shadow.storage.retries import Passing, Patience, retried
from gnomon.shadow.storage.webhdfs_calls import ADDRESS, WebHdfs

PATIENCE = Patience()
Result = TypeVar("Result")
DEAD_ENDS = (FileNotFoundError, NotADirectoryError)


class HdfsFile(RemoteFile):
    """One state of a file. After each read it asks the namenode whether the path still names this file."""

    def __init__(self, storage: "WebHdfsStorage", info: FileInfo, stats: ReadStats | None) -> None:
        super().__init__(f"{storage.root}/{info.path}", info, stats)
        self._storage = storage

    def _fetch(self, spans: Sequence[Range]) -> Sequence[bytes]:
        try:
            return list(in_order([partial(self._storage.read_span, self._path, span) for span in spans]))
        finally:
            found = self._storage.status(self._path)  # numbers are not reused: the same one now was there before
            if how := difference(self, found):
                raise FileChanged(self.name, how, found.size)


class WebHdfsStorage:
    """The files below hdfs://namenode/path. The etag of a file is its number, which is unique and which a rename keeps,
    and its time, which changes when the file is cut or appended to."""

    is_remote = True

    def __init__(self, root: str, patience: Patience = PATIENCE) -> None:
        self.root = root
        _, _, path = root.removeprefix("hdfs://").partition("/")
        self._folder = f"/{path}" if path else ""
        self._patience = patience
        self._hdfs = WebHdfs.of(root, patience)

    # -- reading -------------------------------------------------------------------------------------------------------

    def open(self, path: str, stats: ReadStats | None = None, known: FileInfo | None = None) -> HdfsFile:
        if known is None:
            known = self.status(path)
        return HdfsFile(self, known._replace(path=path), stats)

    def status(self, path: str) -> FileInfo:
        """The current state of a file. FileNotFoundError, NotADirectoryError, IsADirectoryError."""
        found = self._ask("GET", "GETFILESTATUS", path)["FileStatus"]
        if found["type"] != "FILE":
            raise IsADirectoryError(f"{self.root}/{path}: not a file")
        return self._info(found, path)

    def read(self, path: str) -> bytes:
        found = self.status(path)
        with HdfsFile(self, found, None) as file:
            return file.read_range(0, found.size)

    def read_span(self, path: str, span: Range) -> bytes:
        """Bytes of the file that has this path now."""
        offset, length = span
        return self._retried(path, lambda: self._hdfs.fetch(self._place(path), offset, length))

    def list(self, prefix: str = "", hidden: Hidden = False, witness: str = "") -> Iterator[FileInfo]:
        yield from self._list(prefix.strip("/"), hidden)

    def _list(self, folder: str, hidden: Hidden) -> Iterator[FileInfo]:
        try:
            found = self._ask("GET", "LISTSTATUS", folder)["FileStatuses"]["FileStatus"]
        except DEAD_ENDS:
            return
        before = f"{folder}/" if folder else ""
        named = [(item["pathSuffix"] + "/" * (item["type"] == "DIRECTORY"), item) for item in found]
        for name, item in sorted(named, key=itemgetter(0)):  # a folder sorts as its files do: behind `folder.txt`
            if not name or is_skipped(item["pathSuffix"], hidden):  # an empty name: `folder` is a file
                continue
            if name.endswith("/"):
                yield from self._list(before + item["pathSuffix"], hidden)
            elif item["type"] == "FILE":
                yield self._info(item, before + name)

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_new(self, path: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        folder, slash, _ = path.rpartition("/")
        staged = f"{folder}{slash}{STAGED}{uuid.uuid4().hex}"
        try:
            # Only this put uses the staged name, so it is safe to write it again.
            self._retried(staged, lambda: self._hdfs.create(self._place(staged), data))
            written = self.status(staged)
            if written.size != len(data):
                raise StorageError(f"wrote {len(data)} bytes, the store has {written.size}", f"{self.root}/{staged}")
            self._rename(staged, path, written)
        except BaseException:
            self._clear(staged)
            raise

    def _clear(self, staged: str) -> None:
        """Remove the file of a failed put. If that fails, too, the file stays under a name that engines skip."""
        with suppress(Passing, StorageError, OSError):
            self._hdfs.json("DELETE", "DELETE", self._place(staged))

    def move_new(self, path: str, target: str) -> None:
        moved = self.status(path)
        self._ask("PUT", "MKDIRS", target.rpartition("/")[0])
        self._rename(path, target, moved)

    def _rename(self, path: str, target: str, moved: FileInfo) -> None:
        """Rename without overwrite. The number of the file at `target` shows whether it is ours, whatever the answer
        was."""
        where = f"{self.root}/{target}"
        options = {"destination": self._place(target), "renameoptions": "NONE"}  # otherwise it moves into a folder

        def rename() -> None:
            failure: Exception | None = None
            try:
                self._hdfs.json("PUT", "RENAME", self._place(path), **options)
            except (FileNotFoundError, StorageError) as error:
                failure = error
            try:
                found = self.status(target)
            except IsADirectoryError:
                raise AlreadyExists("the name is taken, by a folder", where) from None
            except DEAD_ENDS:
                raise StorageError(f"the store does not rename {path} to it ({failure})", where) from None
            if found.etag != moved.etag:
                raise AlreadyExists("the name is taken", where, action=Action.RUN_AGAIN) from None

        self._retried(target, rename)

    def delete(self, path: str) -> None:
        self._delete(path, "false")

    def delete_folder(self, path: str) -> None:
        self._delete(path.strip("/"), "true")

    def delete_empty(self, path: str) -> None:
        """Remove empty folders. Without `recursive` the namenode refuses a folder with files, but would remove a
        file."""
        folder = path.strip("/")
        for name in self._folders_in(folder):
            self.delete_empty(f"{folder}/{name}")
        if folder and self._is_empty(folder):
            with suppress(StorageError):  # another program just put a file there
                self._delete(folder, "false")

    def _folders_in(self, folder: str) -> Sequence[str]:
        with suppress(*DEAD_ENDS):
            found = self._ask("GET", "LISTSTATUS", folder)["FileStatuses"]["FileStatus"]
            return [one["pathSuffix"] for one in found if one["type"] == "DIRECTORY"]
        return []

    def _is_empty(self, folder: str) -> bool:
        try:
            return not self._ask("GET", "LISTSTATUS", folder)["FileStatuses"]["FileStatus"]
        except DEAD_ENDS:
            return False

    def _delete(self, path: str, recursive: str) -> None:
        with suppress(*DEAD_ENDS):
            self._ask("DELETE", "DELETE", path, recursive=recursive)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _place(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder or "/"

    def _ask(self, method: str, operation: str, path: str, **options: str) -> Any:
        """The answer of a call that may be repeated."""
        return self._retried(path, lambda: self._hdfs.json(method, operation, self._place(path), **options))

    def _retried(self, path: str, call: Callable[[], Result]) -> Result:
        return retried(call, self._patience, f"{self.root}/{path}" if path else self.root)

    def _info(self, found: Any, path: str) -> FileInfo:
        if "fileId" not in found:
            raise StorageError(f"not a namenode's WebHDFS (a gateway?); {ADDRESS} names its HTTP address", self.root)
        millis = found["modificationTime"]
        return FileInfo(path, found["length"], millis * 1_000_000, f"{found['fileId']}-{millis}")
