"""The Spark jobs: build an index, load rows by key, append rows with new keys.

- `build`    source to index: list, diff, scan, write, commit (`files`, `specs`, `scan`, `write` are its steps)
- `join`     keys to entries: the sample is shuffled to the index's buckets
- `load`     rows by key, or by pointers: a join that shuffles the sample and never the index or the payload
- `dedup`    rows whose key the source does not have; `append` adds them, `stage` writes their files, as `layout`
             says; `origin` builds an index that is missing, `rejected` reports what was not appended
- `read_batch`  the files of a batch, of any format, as rows in the source's types: `batch_files`, `batch_columns`
- `write_btree`  any rows as a key-value folder
- `ship`     our packages for the executors of a cluster
- `index_manager`  Dione's `IndexManager`, on an index of ours
- `index_table`  the index folder as a table of the Spark catalog
- `datasource`  an index as a table of Spark SQL (`register`, `read_index`); `pushdown` says what its filters ask for
- `progress` what a job is doing, told while it runs
- `streaming`  appends of the micro-batches of a query
- `session`  a Spark session for programs that are not handed one
"""

from indexer.append import DedupResult, append_new
from indexer.batch_files import batch_digest
from indexer.build import BuildResult, build
from indexer.datasource import read_index, register
from indexer.dedup import filter_new
from indexer.index_manager import IndexManager
from indexer.index_table import declare_table
from indexer.join import join_with_index
from indexer.load import load, load_by_index
from indexer.origin import Origin
from indexer.read_batch import read_batch
from indexer.ship import ship
from indexer.streaming import append_batches
from indexer.write_btree import WriteResult, write_btree

__all__ = [
    "BuildResult",
    "DedupResult",
    "IndexManager",
    "Origin",
    "WriteResult",
    "append_batches",
    "append_new",
    "batch_digest",
    "build",
    "declare_table",
    "filter_new",
    "join_with_index",
    "load",
    "load_by_index",
    "read_batch",
    "read_index",
    "register",
    "ship",
    "write_btree",
]
