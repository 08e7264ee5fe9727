"""Index files from sorted entries, made on this machine.

- `entry_sorter`   entries sorted within a bound of memory
- `index_locally`  index files of source files and of key-value folders
- `merge`          live entries of several index files, sorted, by bucket
- `workers`        processes that share the work of a job
"""

from gnomon.shadow.write.entry_sorter import GROUP, EntrySorter, by_number, writing_temporary_files
from gnomon.shadow.write.index_locally import (
    MEMORY_BYTES,
    Entries,
    Piece,
    Target,
    index_entries,
    index_locally,
    index_pieces,
    index_rows,
    stored_columns,
    write_rows,
)
from gnomon.shadow.write.merge import merged, shares_of_merge
from gnomon.shadow.write.workers import WORTH_ROWS, Workers, cores, processes_for

__all__ = [
    "GROUP",
    "MEMORY_BYTES",
    "WORTH_ROWS",
    "Entries",
    "EntrySorter",
    "Piece",
    "Target",
    "Workers",
    "by_number",
    "cores",
    "index_entries",
    "index_locally",
    "index_pieces",
    "index_rows",
    "merged",
    "processes_for",
    "shares_of_merge",
    "stored_columns",
    "write_rows",
    "writing_temporary_files",
]
