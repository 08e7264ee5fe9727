"""The index table: its files, what they cover, and how a key is answered. No Spark, no web.

- `opening`           opens an index
- `index`             an open index: what a program holds to answer keys
- `at_hand`           what an open index knows of a key without a wait
- `current_snapshot`  the snapshot that an open index answers from, and retries on a newer one
- `errors`            what can go wrong
- `storage`           the only place that opens files
- `metadata`          spec, snapshots, segments, and the files of the source
- `values`            values and keys as Python, JSON and text show them
- `lookup`            keys to pointers
- `fetch`             pointers to rows
- `commit`            commits of builds, appends and other changes
- `maintenance`       compact, rebucket, vacuum
- `verify`            whether an index is what it says
- `old_names`         names of an earlier version, accepted with a warning

Each sub-package imports only those above it in this list. docs/internals/index-format.md shows the files and says what
is promised of them."""

from gnomon.shadow.errors import (
    BTreeError,
    DamagedIndexFile,
    DamagedMetadata,
    FilesVanished,
    GnomonError,
    IndexNotFound,
    KeyTypeError,
    NewerFormat,
    PartitionNotFound,
    ShadowError,
    SnapshotNotFound,
    SourceError,
    SourceNotFound,
    SpecMismatch,
    StalePointer,
    UnknownColumn,
    UsageError,
)
from gnomon.shadow.fetch import Answer, FetchStats
from gnomon.shadow.index import Index
from gnomon.shadow.opening import open_index
from gnomon.shadow.storage import Trace
from gnomon.shadow.values import to_json

__all__ = [
    "Answer",
    "BTreeError",
    "DamagedIndexFile",
    "DamagedMetadata",
    "FetchStats",
    "FilesVanished",
    "GnomonError",
    "Index",
    "IndexNotFound",
    "KeyTypeError",
    "NewerFormat",
    "PartitionNotFound",
    "ShadowError",
    "SnapshotNotFound",
    "SourceError",
    "SourceNotFound",
    "SpecMismatch",
    "StalePointer",
    "Trace",
    "UnknownColumn",
    "UsageError",
    "open_index",
    "to_json",
]
