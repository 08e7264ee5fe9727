"""The files of a source, as jobs read them.

- `source_files`    rows, columns and fingerprints of each file, and what tasks read of it
- `catalog_tables`  tables of a catalog as sources
- `access`          whether jobs may read a place and write there
"""

from gnomon.jobs.files.access import Access, check_access
from gnomon.jobs.files.catalog_tables import CatalogTable, ReadTable, is_table, named_source, no_catalog
from gnomon.jobs.files.source_files import (
    MOST_TASKS,
    READERS,
    Described,
    check_names,
    check_unchanged,
    check_visible,
    columns_in,
    columns_of,
    describe,
    detect_format,
    exported_maps,
    infer_locally,
    is_inferred,
    listed,
    merged_columns,
    of_one_format,
    scan_file,
    shares_of,
    with_rows,
)

__all__ = [
    "MOST_TASKS",
    "READERS",
    "Access",
    "CatalogTable",
    "Described",
    "ReadTable",
    "check_access",
    "check_names",
    "check_unchanged",
    "check_visible",
    "columns_in",
    "columns_of",
    "describe",
    "detect_format",
    "exported_maps",
    "infer_locally",
    "is_inferred",
    "is_table",
    "listed",
    "merged_columns",
    "named_source",
    "no_catalog",
    "of_one_format",
    "scan_file",
    "shares_of",
    "with_rows",
]
