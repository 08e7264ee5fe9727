"""What can go wrong with an index, beyond the errors of one index file (`btree`) and one data file (`sources`),
which this module hands on. Each message says what, where, and what to do."""

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
    "FileChanged",
    "FilesGone",
    "FilesVanished",
    "GnomonError",
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
    "UnsafeStore",
    "UnsortedKeys",
    "UnsupportedFormat",
    "UsageError",
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
    """The rows of a key are more than the caller takes in one answer. `unit` is rows or bytes, `most` how many of these
    it takes, `count` how many rows the key has."""

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
    """Files that the index covers are gone from the source, and the caller did not say that they were deleted on
    purpose."""


class SnapshotNotFound(ShadowError):
    """A snapshot asked for by its number is not there (any more)."""


class NewerFormat(ShadowError):
    """The index was written by a later version of this program."""


class DamagedMetadata(ShadowError):
    """A file below `_shadow/` is missing or not what was written."""


class IndexFileGone(DamagedMetadata):
    """An index file that the snapshot lists is not there: vacuumed since, or lost."""


class BuildFailed(ShadowError):
    """What was written is not what was read; nothing was committed."""


class ConcurrentCommit(ShadowError):
    """What another commit did cannot be brought together with ours; nothing of ours is visible."""


class FilesGone(ConcurrentCommit):
    """A vacuum removed files that the commit was to name, or may be about to: the work slept for a day. Nothing of it
    may be committed; it has to be done again."""


class CommitLost(ConcurrentCommit):
    """Our snapshot was put and does not count. A vacuum may have seen it, and removed what it named as superseded, so
    that nothing of it may be committed again."""


class StorageError(ShadowError):
    """The store cannot be read or written."""


class OutOfTime(StorageError):
    """The caller's own deadline has passed. It says nothing of the store, or of the index."""


class Unreachable(StorageError):
    """The store does not answer, or goes on failing: it may be there again later."""


class AlreadyExists(StorageError):
    """A create-only put found the name taken."""


class UnsafeStore(StorageError):
    """The store lets a create-only put replace what is there: two writers could lose each other's work."""


class FileChanged(StorageError):
    """A file is not the one on record: `how` says in what, `size` are its bytes now where that is known."""

    def __init__(self, path: str, how: str, size: int | None = None) -> None:
        super().__init__(f"the file changed ({how})", path)
        self.how = how
        self.size = size


# What fails where one file is damaged, changed or gone: other keys can be answered.
OF_ONE_FILE = (SourceError, BTreeError, IndexFileGone, OSError)
