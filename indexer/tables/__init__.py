"""Sources as tables of Spark: their formats and columns.

- `catalog`       tables of Spark's catalog
- `formats`       the format of a catalog table
- `dione_table`   the export of an index as a table of Dione
- `columns`       the columns that a catalog table declares
- `column_types`  the types of the columns of source files in Spark
- `source_cast`   casts of the columns of a batch to the source's
"""

from gnomon.indexer.tables.catalog import add_partitions, default_location, folders_table, read_table
from gnomon.indexer.tables.column_types import arrow_schema, read_parquet, source_types, spark_types
from gnomon.indexer.tables.dione_table import export_dione
from gnomon.indexer.tables.source_cast import SourceCast, batch_texts, first_cast, source_cast

__all__ = [
    "SourceCast",
    "add_partitions",
    "arrow_schema",
    "batch_texts",
    "default_location",
    "export_dione",
    "first_cast",
    "folders_table",
    "read_parquet",
    "read_table",
    "source_cast",
    "source_types",
    "spark_types",
]
