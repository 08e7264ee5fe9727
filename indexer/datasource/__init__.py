"""An index as a table of Spark SQL.

- `source`       `spark.read.format("gnomon")`
- `pushdown`     filters of a query as look-ups
- `index_table`  the index folder as a table of the catalog
- `entry_table`  the columns of that table, and rows of the source for its entries
"""

from gnomon.indexer.datasource.index_table import INDEX, PROPERTIES, declare_table, form_of, table_properties
from gnomon.indexer.datasource.source import read_index, register

__all__ = [
    "INDEX",
    "PROPERTIES",
    "declare_table",
    "form_of",
    "read_index",
    "register",
    "table_properties",
]
