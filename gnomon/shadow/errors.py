"""Errors of an index. This module also exports the errors of one index file (`btree`) and of one data file (`sources`).
Each message says what is wrong, where, and what to do."""

from gnomon.base.errors import GnomonError
from gnomon.btree.errors import BTreeError, DamagedIndexFile, KeyTypeError, UnsortedKeys
from gnomon.sources.errors import DamagedSource, NotReadBack, OptionError, SourceError, StalePointer, UnsupportedFormat

__all__ = [
    "OF_ONE_FILE",
    "AlreadyExists",
    "BTreeError",
    "BeyondBound",
    "BuildFailed",
    "CommitLost",
    "ConcurrentCommit",
    "DamagedIndexFile",
    "DamagedMetadata",
    "DamagedSource",
    "Denied",
    "FileChanged",
    "FilesGone",
    "FilesVanished",
    "GnomonError",
    "IndexBehind",
    "IndexFileGone",
    "IndexNotFound",
    "KeyTypeError",
    "NewerFormat",
    "NotReadBack",
    "OptionError",
    "OutOfTime",
    "PartitionNotFound",
    "ShadowError",
    "SnapshotNotFound",
    "SourceError",
    "SourceNotFound",
    "SpecMismatch",
    "StalePointer",
    "StorageError",
    "UnknownColumn",
    "Unreachable",
    "Unreadable",
    "UnsafeStore",
    "UnsortedKeys",
    "UnsupportedFormat",
    "UsageError",
    "WorkerLost",
]


class ShadowError(GnomonError):
    """Base of the errors of an index folder."""


class UsageError(ShadowError):
    """The caller asked for something that this index or source does not have."""


class UnknownColumn(UsageError):
    """A column that is neither in the source nor a partition column."""


class PartitionNotFound(UsageError):
    """No partition has the values that a `where` names."""


class BeyondBound(ShadowError):
    """A key has more rows than the caller accepts in one answer. `unit` is rows or bytes, `most` the caller's limit in
    this unit, `count` the rows of the key."""

    def __init__(self, what: str, unit: str, most: int, count: int) -> None:
        super().__init__(what)
        self.unit = unit
        self.most = most
        self.count = count


class SpecMismatch(UsageError):
    """A build with another spec than the one the index was made with."""


class IndexNotFound(ShadowError):
    """The path holds no index."""


class SourceNotFound(ShadowError):
    """The source is missing, or holds no data files."""


class FilesVanished(SourceNotFound):
    """Files that the index covers are gone from the source, and the caller did not confirm that they were deleted."""


class IndexBehind(ShadowError):
    """The index is too far behind its table to answer as of the table's newest version."""


class SnapshotNotFound(ShadowError):
    """No snapshot with this number exists, or a vacuum has removed it."""


class NewerFormat(ShadowError):
    """The index was written by a later version of this program."""


class DamagedMetadata(ShadowError):
    """A file below `_shadow/` is missing, or has other bytes than were written."""


class IndexFileGone(DamagedMetadata):
    """An index file that the snapshot lists is missing: vacuumed since, or lost."""


class BuildFailed(ShadowError):
    """The written entries are not the rows that were read; nothing was committed."""


class WorkerLost(ShadowError):
    """A process that did a part of a job has ended before it was done."""


class ConcurrentCommit(ShadowError):
    """The changes conflict with a commit of another program; none of them is visible."""


class FilesGone(ConcurrentCommit):
    """A vacuum removed files that the commit names, or may be about to remove them, since the program slept for a day.
    The program must not commit its work, and has to run again."""


class CommitLost(ConcurrentCommit):
    """The program's snapshot was written but is not valid. A vacuum may have seen it and removed its files as
    superseded, so they must not be committed again."""


class TableChanged(ConcurrentCommit):
    """A lake table changed so that the files of an append cannot become files of it any more: another schema, another
    partitioning, another table of its name, or files that its clean-up removed. Nothing of the append is in the
    table."""


class StorageError(ShadowError):
    """The store cannot be read or written."""


class Unreadable(StorageError, OSError):
    """The operating system does not let a local file or folder be read. It is an OSError too, with its `errno`,
    `strerror` and `filename`, as long as it is not pickled. That a file is not there is a FileNotFoundError instead,
    which callers turn into an error that says which file they need."""


class Denied(Unreadable, PermissionError):
    """This user may not read a local file or folder."""


class OutOfTime(StorageError):
    """The caller's own deadline has passed. It says nothing about the store or the index."""


class Unreachable(StorageError):
    """The store does not answer, or keeps failing. It may answer later."""


class AlreadyExists(StorageError):
    """A create-only put found the name taken."""


class UnsafeStore(StorageError):
    """The store lets a create-only put replace an existing file: two writers could lose each other's work."""


class FileChanged(StorageError):
    """A file differs from the recorded one. `how` names the difference; `size` is the current size in bytes, if
    known."""

    def __init__(self, path: str, how: str, size: int | None = None) -> None:
        super().__init__(f"the file changed ({how})", path)
        self.how = how
        self.size = size


# Errors of one damaged, changed or missing file: other keys can be answered.
OF_ONE_FILE = (SourceError, BTreeError, IndexFileGone, OSError)
