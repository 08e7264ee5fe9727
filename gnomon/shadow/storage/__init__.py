"""The only place that opens files: local disks, object stores, the web, HDFS.

- `contract`        the interface of every store, fingerprints, and the words of errors
- `locations`       a path or URL to its store; the storage of a source
- `local`           local disks
- `waiting`         deadlines, and work that must not wait
- `objects`         S3, Google Cloud Storage, Azure and memory, with obstore
- `object_clients`  connections to object stores, and the meaning of their errors
- `credentials`     credentials that a catalog vends for the files of a table
- `web`             files on the web, which are only read: by URL, and data sets of Hugging Face
- `webhdfs`         HDFS, over WebHDFS
- `webhdfs_calls`   the HTTP requests of WebHDFS, and delegation tokens
- `remote_file`     an open file of a remote store
- `retries`         which calls to a store are repeated, and when
- `concurrency`     concurrent calls, with results in order, and their threads
- `caches`          caches bounded by bytes
- `disk_cache`      the cache on a local disk, and remote files that are read through it
- `trace`           the steps of one request, with their times and reads
"""

from gnomon.base.readers import looking_again
from gnomon.shadow.storage.caches import ByteCache, CacheCounts, CacheShare, EarlyCache, Sized
from gnomon.shadow.storage.concurrency import THREADS, Begun, ahead, in_order, threads
from gnomon.shadow.storage.contract import (
    ANY_TIME,
    NO_INODE,
    PROBE_FOLDER,
    STAGED,
    FileInfo,
    Identity,
    OpenFile,
    Readable,
    ReadStats,
    Storage,
    difference,
    identity,
    is_hidden,
    is_in_doubt,
    kept_at,
    probe,
    time_of_store,
    without_secrets,
    words_of,
)
from gnomon.shadow.storage.credentials import Credential, Vendor, govern, vendor_of
from gnomon.shadow.storage.disk_cache import FOLDER_BYTES, CachedFile, CachedStorage, DiskCache, disk_cache, through
from gnomon.shadow.storage.local import LocalStorage, writing
from gnomon.shadow.storage.locations import (
    Place,
    SourceStorage,
    access_action,
    as_location,
    below,
    endpoint_of,
    host,
    is_absolute,
    is_local,
    join,
    missing,
    source_storage,
    split,
    storage_at,
)
from gnomon.shadow.storage.retries import patiently
from gnomon.shadow.storage.trace import Step, Trace, TracedReader, step_of
from gnomon.shadow.storage.waiting import (
    WouldWait,
    awaited,
    check_deadline,
    check_may_wait,
    looked_again,
    looked_twice,
    may_wait,
    status_in_memory,
    within,
    without_waiting,
)

__all__ = [
    "ANY_TIME",
    "FOLDER_BYTES",
    "NO_INODE",
    "PROBE_FOLDER",
    "STAGED",
    "THREADS",
    "Begun",
    "ByteCache",
    "CacheCounts",
    "CacheShare",
    "CachedFile",
    "CachedStorage",
    "Credential",
    "DiskCache",
    "EarlyCache",
    "FileInfo",
    "Identity",
    "LocalStorage",
    "OpenFile",
    "Place",
    "ReadStats",
    "Readable",
    "Sized",
    "SourceStorage",
    "Step",
    "Storage",
    "Trace",
    "TracedReader",
    "Vendor",
    "WouldWait",
    "access_action",
    "ahead",
    "as_location",
    "awaited",
    "below",
    "check_deadline",
    "check_may_wait",
    "difference",
    "disk_cache",
    "endpoint_of",
    "govern",
    "host",
    "identity",
    "in_order",
    "is_absolute",
    "is_hidden",
    "is_in_doubt",
    "is_local",
    "join",
    "kept_at",
    "looked_again",
    "looked_twice",
    "looking_again",
    "may_wait",
    "missing",
    "patiently",
    "probe",
    "source_storage",
    "split",
    "status_in_memory",
    "step_of",
    "storage_at",
    "threads",
    "through",
    "time_of_store",
    "vendor_of",
    "within",
    "without_secrets",
    "without_waiting",
    "words_of",
    "writing",
]
