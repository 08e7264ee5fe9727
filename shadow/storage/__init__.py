"""The only place that opens files: local disks, object stores, HDFS.

- `contract`  what every store must give
- `locations` a path or URL to its store
- `local`     local disk
- `objects`   S3, Google Cloud Storage, Azure, memory
- `webhdfs`   HDFS
- `retries`   calls that may be made again, and how often
- `deadlines` how long the caller of it all waits
- `threads`   those that wait for stores
- `ranges`    several ranged reads as few larger ones
- `source`    a source whose files may lie on several stores
- `remote_file` an open file of a store that is asked over a network
"""

from shadow.storage.contract import FileInfo, OpenFile, Readable, ReadStats, Storage, is_hidden
from shadow.storage.local import LocalStorage
from shadow.storage.locations import Place, as_location, below, host, is_absolute, is_local, join, split, storage_at
from shadow.storage.source import SourceStorage, source_storage

__all__ = [
    "FileInfo",
    "LocalStorage",
    "OpenFile",
    "Place",
    "ReadStats",
    "Readable",
    "SourceStorage",
    "Storage",
    "as_location",
    "below",
    "host",
    "is_absolute",
    "is_hidden",
    "is_local",
    "join",
    "source_storage",
    "split",
    "storage_at",
]
