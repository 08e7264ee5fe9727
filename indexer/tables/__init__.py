"""Sources as tables of Spark: their formats and columns.

- `catalog`       tables of Spark's catalog
- `formats`       the format of a catalog table
- `dione_table`   the export of an index as a table of Dione
- `columns`       the columns that a catalog table declares
"""

from gnomon.indexer.tables.catalog import add_partitions, default_location, folders_table, read_table
from gnomon.indexer.tables.dione_table import export_dione

__all__ = [
    "add_partitions",
    "default_location",
    "export_dione",
    "folders_table",
    "read_table",
]
