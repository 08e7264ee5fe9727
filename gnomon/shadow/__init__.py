"""The index table: its files, what they cover, and how a key is answered. This package imports no Spark and no web
framework.

- `index`             opens an index, which answers keys
- `current_snapshot`  the snapshot from which an open index answers, and the retry on a newer one
- `newest_version`    answers as of a newer version of a lake table than the index covers
- `rows_of_files`     rows at pointers, from covered files or from files with whole names
- `selected_rows`     the rows that conditions on the key select, from entries or from the source
- `key_sets`          the keys of two indexes as sets, without a read of their sources
- `polars_scan`       an index as a Polars LazyFrame
- `errors`            the errors of an index
- `storage`           the only place that opens files
- `tables`            the files of a source: folders, catalog tables, Delta and Iceberg tables
- `metadata`          spec, snapshots, segments, and the files of the source
- `values`            values and keys in Python, JSON and text
- `lookup`            keys to pointers
- `fetch`             pointers to rows
- `write`             index files from sorted entries, made in this process
- `commit`            commits of builds, appends and other changes
- `maintenance`       compact, rebucket, vacuum
- `search`            the rows of some keys in all versions of a lake table
- `verify`            checks that an index is undamaged and that its pointers are right

Each sub-package imports only sub-packages above it in this list. docs/internals/index-format.md describes the files and
what is guaranteed about them."""

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
from gnomon.shadow.index import Index, open_index
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.storage import Trace
from gnomon.shadow.values import key_filter, to_json

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
    "OpenIndex",
    "PartitionNotFound",
    "RangeQuery",
    "ShadowError",
    "SnapshotNotFound",
    "SourceError",
    "SourceNotFound",
    "SpecMismatch",
    "StalePointer",
    "Trace",
    "UnknownColumn",
    "UsageError",
    "key_filter",
    "open_index",
    "to_json",
]
