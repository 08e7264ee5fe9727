"""The only place that opens files: local disks, object stores, HDFS.

- `contract`           the interface of every store
- `locations`          a path or URL to its store
- `local`              local disks
- `local_status`       the status of a local file, without a wait
- `no_waiting`         work that must not wait
- `objects`            S3, Google Cloud Storage, Azure and memory, with obstore
- `object_clients`     connections to object stores, one for each process
- `object_errors`      converts obstore's errors to Gnomon's
- `webhdfs`            HDFS, over WebHDFS
- `webhdfs_calls`      the HTTP requests of WebHDFS
- `hadoop_tokens`      delegation tokens for WebHDFS
- `source`             the storage of a source, whose files may lie on several stores
- `remote_file`        an open file of a remote store
- `ranges`             several ranged reads as few larger ones
- `retries`            which calls to a store are repeated, and when
- `deadlines`          the deadline of a caller, in every thread that works for it
- `thread_pool`        the threads that wait for stores
- `concurrency`        concurrent calls, with results in order
- `caches`             caches bounded by bytes
- `trace`              the steps of one request, with their times and reads
- `fingerprint`        whether a file is still the one on record
- `create_only_probe`  whether a store refuses to overwrite a file
- `redaction`          the words of errors and addresses, without secrets
"""

from gnomon.shadow.storage.caches import ByteCache, CacheCounts, CacheShare, EarlyCache, Sized
from gnomon.shadow.storage.concurrency import Begun, in_order
from gnomon.shadow.storage.contract import NO_INODE, STAGED, FileInfo, OpenFile, Readable, ReadStats, Storage, is_hidden
from gnomon.shadow.storage.create_only_probe import PROBE_FOLDER, probe, time_of_store
from gnomon.shadow.storage.deadlines import awaited, check, within
from gnomon.shadow.storage.fingerprint import ANY_TIME, Identity, difference, identity, is_in_doubt
from gnomon.shadow.storage.local import LocalStorage, writing
from gnomon.shadow.storage.local_status import status_in_memory
from gnomon.shadow.storage.locations import (
    Place,
    access_action,
    as_location,
    below,
    endpoint_of,
    host,
    is_absolute,
    is_local,
    join,
    missing,
    split,
    storage_at,
)
from gnomon.shadow.storage.no_waiting import WouldWait, check_may_wait, may_wait, without_waiting
from gnomon.shadow.storage.redaction import without_secrets, words_of
from gnomon.shadow.storage.retries import looked_twice, patiently
from gnomon.shadow.storage.source import SourceStorage, source_storage
from gnomon.shadow.storage.thread_pool import threads
from gnomon.shadow.storage.trace import Step, Trace, TracedReader, step_of

__all__ = [
    "ANY_TIME",
    "NO_INODE",
    "PROBE_FOLDER",
    "STAGED",
    "Begun",
    "ByteCache",
    "CacheCounts",
    "CacheShare",
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
    "WouldWait",
    "access_action",
    "as_location",
    "awaited",
    "below",
    "check",
    "check_may_wait",
    "difference",
    "endpoint_of",
    "host",
    "identity",
    "in_order",
    "is_absolute",
    "is_hidden",
    "is_in_doubt",
    "is_local",
    "join",
    "looked_twice",
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
    "time_of_store",
    "within",
    "without_secrets",
    "without_waiting",
    "words_of",
    "writing",
]
