"""Index files from sorted entries, made in this process.

- `entry_sorter`   entries sorted within a bound of memory
- `index_locally`  index files of source files and of key-value folders
- `merge`          live entries of several index files, sorted, by bucket
"""

from gnomon.shadow.write.entry_sorter import GROUP, EntrySorter, writing_temporary_files
from gnomon.shadow.write.index_locally import (
    MEMORY_BYTES,
    Entries,
    file_columns,
    index_entries,
    index_locally,
    index_rows,
    stored_columns,
)
from gnomon.shadow.write.merge import merged

__all__ = [
    "GROUP",
    "MEMORY_BYTES",
    "Entries",
    "EntrySorter",
    "file_columns",
    "index_entries",
    "index_locally",
    "index_rows",
    "merged",
    "stored_columns",
    "writing_temporary_files",
]
