"""The folder of an export, with a record of the files of each partition. One export at a time may write to it.

A record is a numbered file: `_gnomon-export.1.json`. An export writes a record when it begins, in which the partitions
that it changes have no files, and another record when it ends. Each record has the next number. Records are put
create-only, so one of two concurrent exports finds that its record is not the newest. It removes its own files and
fails. An export removes files by name, and so never removes a file of the other export.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from gnomon.shadow.errors import AlreadyExists, ConcurrentCommit, UsageError
from gnomon.shadow.storage import STAGED, Storage, join

PREFIX, SUFFIX = "_gnomon-export.", ".json"  # engines skip names that begin with an underscore
KEPT = 20  # records: an export that began before a removed record could write its number again


class Partition(NamedTuple):
    """The files of a partition, by name. `digest` changes with its source files; "" is that of no files."""

    digest: str
    files: list[str]


class ExportFolder:
    """An export to a folder. Call `unchanged`, `begin`, `put` for each file, and `end`.

    UsageError where the folder has files, but no record of an export. ConcurrentCommit where another export has begun
    since: that export replaces the files of this one."""

    def __init__(self, out: Storage) -> None:
        self._out = out
        self._export = str(uuid.uuid4())
        self._written: list[str] = []  # paths
        records = self._records()
        self._number, self._before = max(records, default=0), records
        self.partitions = self._read() if records else {}  # of the newest record, by folder

    @property
    def root(self) -> str:
        return self._out.root

    def unchanged(self, digests: Mapping[str, str]) -> dict[str, Partition]:
        """The recorded partitions that still have these digests and all of their files. UsageError for files in a
        folder that is a partition neither in the record nor in `digests`."""
        there: dict[str, set[str]] = {}
        for info in self._out.list():
            folder, _, name = info.path.rpartition("/")
            there.setdefault(folder, set()).add(name)
        for folder in there:
            if folder and folder not in self.partitions and folder not in digests:
                raise UsageError("no export has written these files; remove them", join(self.root, folder))
        return {
            folder: partition
            for folder, partition in self.partitions.items()
            if digests.get(folder) == partition.digest and there.get(folder) == set(partition.files)
        }

    def begin(self, unchanged: Mapping[str, Partition], others: Iterable[str]) -> None:
        """Write the first record, and remove the files of the partitions `others`, which will change."""
        changed = {folder: Partition("", []) for folder in others}
        self._put_record({**unchanged, **changed})
        for folder in changed:
            self._remove_others(folder)
            self._out.delete_empty(folder)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of a partition."""
        self._check()
        self._written.append(path)
        self._out.put_new(path, chunks)
        self._check()

    def put_schema(self, path: str, text: str) -> None:
        """Write a file, unless it is there with the same text."""
        data = text.encode()
        try:
            if self._out.read(path) == data:
                return
        except FileNotFoundError:
            pass
        self._check()
        self._out.delete(path)
        try:
            self._out.put_new(path, [data])
        except AlreadyExists:
            self._give_up()
        self._check()

    def end(self, digests: Mapping[str, str], unchanged: Mapping[str, Partition]) -> None:
        """Record the files of all partitions."""
        now = {folder: Partition(digest, []) for folder, digest in digests.items()}
        for path in self._written:
            folder, _, name = path.rpartition("/")
            now[folder].files.append(name)
        for folder in now.keys() - unchanged.keys():
            self._remove_others(folder)
        self._put_record({**now, **unchanged})

    def remove_written(self) -> None:
        """Remove the files that this export wrote, because it fails."""
        for path in self._written:
            self._out.delete(path)
        self._written.clear()

    def _remove_others(self, folder: str) -> None:
        """Remove the files of a partition that this export did not write. An earlier export may have written them: it
        was killed, or has not noticed this one."""
        others = {info.path for info in self._out.list(folder)}.difference(self._written)
        if others:
            self._check()  # a later export writes files only after its record
        for path in others:
            self._out.delete(path)

    # -- records -------------------------------------------------------------------------------------------------------

    def _records(self) -> list[int]:
        """The numbers of the records. UsageError where the folder has only other files."""
        numbers, other = [], ""
        for info in self._out.list(hidden=True):
            number = info.path.removeprefix(PREFIX).removesuffix(SUFFIX)
            if info.path == _path(number) and number.isdecimal():
                numbers.append(int(number))
            elif not info.path.startswith(STAGED):  # an unfinished file of an export that was killed
                other = info.path
        if other and not numbers:
            raise UsageError(f"there are files ({other}) and no export; name another folder", self.root)
        return numbers

    def _read(self) -> dict[str, Partition]:
        """The newest record. UsageError for a damaged record, and for one that names a folder that is not a partition:
        the export would remove files there."""
        path = _path(self._number)
        try:
            data = self._out.read(path)
        except FileNotFoundError:
            self._give_up()
        try:
            found = {folder: Partition(*one) for folder, one in json.loads(data)["partitions"].items()}
            if all(_is_partition(folder) and isinstance(one.files, list) for folder, one in found.items()):
                return found
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise UsageError("not the record of an export; remove the folder and export again", join(self.root, path))

    def _put_record(self, partitions: Mapping[str, Partition]) -> None:
        text = json.dumps({"export": self._export, "partitions": partitions}, indent=1)
        try:
            self._out.put_new(_path(self._number + 1), [text.encode()])
        except AlreadyExists:
            self._give_up()
        self._number += 1
        self._written.clear()  # the record has them: an error from here on does not remove them
        for number in self._before:
            if number <= self._number - KEPT:
                self._out.delete(_path(number))

    def _check(self) -> None:
        try:
            self._out.open(_path(self._number + 1)).close()
        except FileNotFoundError:
            return
        self._give_up()

    def _give_up(self) -> NoReturn:
        self.remove_written()
        raise ConcurrentCommit("another export to this folder has begun; run this one again after it", self.root)


def _path(number: int | str) -> str:
    return f"{PREFIX}{number}{SUFFIX}"


def _is_partition(folder: str) -> bool:
    """Whether all parts of a path are a column and its value, as `dt=2026-01-01`."""
    return all(part.find("=") > 0 for part in folder.split("/"))
