"""Jobs on Spark: the engine that runs the steps of `gnomon.jobs` in tasks, and the functions for DataFrames and SQL.

- `spark`       sessions, versions, types, keys, tasks
- `tables`      sources as tables: files, formats, columns
- `build`       the engine of builds; key-value folders
- `join`        keys to entries and rows; the index and the payload are never shuffled
- `datasource`  an index as a table of Spark SQL and of the catalog
- `dedup`       appends of the rows of a batch whose key is new, and changes
- `dione`       Dione's `IndexManager`, and the export of an index as a table of Dione
"""

from gnomon.indexer.build import build, import_dione, write_btree
from gnomon.indexer.datasource import declare_table, read_index, register
from gnomon.indexer.dedup import append_batches, append_new, filter_new, read_batch, upsert
from gnomon.indexer.dione import IndexManager, export_dione
from gnomon.indexer.join import join_with_index, load, load_by_index
from gnomon.indexer.spark import ExecutorsUnfit, ship, task_errors
from gnomon.jobs.build import BuildResult, WriteResult
from gnomon.jobs.dedup import DedupResult, Origin, batch_digest

__all__ = [
    "BuildResult",
    "DedupResult",
    "ExecutorsUnfit",
    "IndexManager",
    "Origin",
    "WriteResult",
    "append_batches",
    "append_new",
    "batch_digest",
    "build",
    "declare_table",
    "export_dione",
    "filter_new",
    "import_dione",
    "join_with_index",
    "load",
    "load_by_index",
    "read_batch",
    "read_index",
    "register",
    "ship",
    "task_errors",
    "upsert",
    "write_btree",
]
