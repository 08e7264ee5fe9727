"""Sources as tables: their files, formats and columns.

- `catalog`           tables of Spark's catalog
- `formats`           the format of a catalog table
- `columns`           the columns that a catalog table declares
- `partition_tables`  the types of the columns of source files in Spark
- `source_cast`       casts of the columns of a batch to the source's
- `infer`             the columns of text files
- `source_files`      the files of a source: rows, columns and fingerprints
"""

from gnomon.indexer.tables.catalog import CatalogTable, add_partitions, folders_table, is_table, named_source
from gnomon.indexer.tables.infer import infer_here, infer_schema
from gnomon.indexer.tables.partition_tables import arrow_schema, exact, read_parquet, source_types
from gnomon.indexer.tables.source_cast import first_columns, no_null_text, source_columns
from gnomon.indexer.tables.source_files import (
    READERS,
    Described,
    check_names,
    check_unchanged,
    columns_of,
    describe,
    detect_format,
    listed,
    of_one_format,
    with_rows,
)

__all__ = [
    "READERS",
    "CatalogTable",
    "Described",
    "add_partitions",
    "arrow_schema",
    "check_names",
    "check_unchanged",
    "columns_of",
    "describe",
    "detect_format",
    "exact",
    "first_columns",
    "folders_table",
    "infer_here",
    "infer_schema",
    "is_table",
    "listed",
    "named_source",
    "no_null_text",
    "of_one_format",
    "read_parquet",
    "source_columns",
    "source_types",
    "with_rows",
]
