"""Sources as tables of Spark: their formats and columns.

- `catalog`  tables of Spark's catalog, their formats, columns and partitions
"""

from gnomon.indexer.tables.catalog import add_partitions, default_location, folders_table, read_table

__all__ = [
    "add_partitions",
    "default_location",
    "folders_table",
    "read_table",
]
