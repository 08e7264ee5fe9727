"""The index table: which files there are, what they cover, and how a key is answered. No Spark, no web.

- `storage`      the only place that opens files, on local disks, object stores and HDFS
- `fingerprint`  whether a file is still the one on record
- `metadata`     JSON files with a checksum
- `spec`         what an index is of
- `snapshots`    the numbered states of an index; the commit
- `segments`     what one build wrote, and what it covers
- `coverage`     the source's files now against a snapshot
- `lake_tables`  whether they belong to a Delta, Iceberg, Hudi, Lance or Paimon table
- `partitions`   Hive-style folders
- `view`         one snapshot, opened
- `stored_files` files that a snapshot names, put and read in ranges
- `index_files`  index files, written and opened
- `filter_files` Bloom filters beside them, and when a look-up consults one
- `page_maps`    where the pages of source files lie, recorded; read when a file is first fetched from
- `key_forms`    keys as they are given and shown, where the source's type is not the index's
- `lookup`       key to pointers: `search` in the index files, which `trees` keeps open, gives `hits`
- `match`        many keys to entries at once
- `entry_batches`  entries as Arrow batches
- `fetch`        pointers to rows
- `entries`      what the index itself holds of a key: of a key-value folder all there is
- `answers`      rows of keys, within `bounds`, and what they cost; `answer_tables`: the same in Arrow
- `trace`        one request, step by step
- `at_once`      calls side by side
- `values`       values of a row in Python and JSON (`calendar`: dates Python cannot hold)
- `caches`       what stays in memory
- `index`        all of it behind `open_index` (`opened`: its state)
- `publish`      the commit of a build; `probe` asks the store whether it is safe
- `append_log`   the appends to the source, and which are not finished (`append_records`: their files on disk;
                 `append_checks`: what `inspect` and `verify` say of them)
- `record`       page maps of files that are indexed already
- `relist`       the manifests of segments written again (`record`, `adopt`)
- `rebase`       what of a build is left when others committed meanwhile; `columns` of the source
- `merge`        the live entries of several index files, sorted, by bucket
- `compact`      many segments into one; another number of buckets
- `old_names`    old names of functions and arguments, accepted with a warning
- `vacuum`       what no kept snapshot needs is removed
- `verify`       pointers of a build followed before its commit; a whole snapshot proved: `list_checks` what it and its
                 manifests say, `proof` its index files (`equal_keys` their order), `readback` the rows they point to,
                 `report` the faults (`values_proof`: of a key-value folder)
- `plain_table`  what engines see of the folder
- `history`      the snapshots that are kept

docs/index-table.md shows the files and says what is promised of them.
"""

from shadow.answers import Answer, FetchStats
from shadow.errors import (
    BTreeError,
    DamagedIndexFile,
    DamagedMetadata,
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
from shadow.index import Index, open_index
from shadow.trace import Trace
from shadow.values import to_json

__all__ = [
    "Answer",
    "BTreeError",
    "DamagedIndexFile",
    "DamagedMetadata",
    "FetchStats",
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
