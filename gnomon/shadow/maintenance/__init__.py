"""Maintenance of an index: compact, rebucket and vacuum.

- `all_versions`      the rows of a key in all versions of a lake table
- `table_versions`    the files and deleted rows of one version of a lake table
- `compaction`        compact and rebucket
- `masking`           the rows that a lake table has deleted, as masks
- `merge`             live entries of several index files, sorted, by bucket
- `rewrite_segments`  several segments as one
- `entry_columns`     the columns of entries
- `entry_sorter`      entries sorted within a bound of memory
- `index_locally`     index files, made in this process
- `tiered_merge`      the small segments that a build merges in its own commit
- `vacuuming`         removes the files that no kept snapshot needs
- `snapshot_history`  the snapshots that are kept
"""

from gnomon.shadow.maintenance.all_versions import AllVersions, VersionedRow, find_all_versions
from gnomon.shadow.maintenance.compaction import CompactResult, compact, rebucket
from gnomon.shadow.maintenance.entry_columns import file_columns, stored_columns
from gnomon.shadow.maintenance.entry_sorter import GROUP, EntrySorter
from gnomon.shadow.maintenance.index_locally import MEMORY_BYTES, Entries, index_entries, index_locally, index_rows
from gnomon.shadow.maintenance.masking import check_mask, masks_at
from gnomon.shadow.maintenance.snapshot_history import Record, history, newest_records
from gnomon.shadow.maintenance.tiered_merge import publish_build
from gnomon.shadow.maintenance.vacuuming import check_no_other_files, vacuum

__all__ = [
    "GROUP",
    "MEMORY_BYTES",
    "AllVersions",
    "CompactResult",
    "Entries",
    "EntrySorter",
    "Record",
    "VersionedRow",
    "check_mask",
    "check_no_other_files",
    "compact",
    "file_columns",
    "find_all_versions",
    "history",
    "index_entries",
    "index_locally",
    "index_rows",
    "masks_at",
    "newest_records",
    "publish_build",
    "rebucket",
    "stored_columns",
    "vacuum",
]
