"""The files of a source, as jobs read them.

- `source_files`    rows, columns and fingerprints, from the metadata of each file
- `catalog_tables`  tables of a catalog as sources
- `text_files`      the columns of files that do not declare them
- `scanning`        the indexed columns of a file, and files that tasks wrote
- `page_maps`       the page maps of a file
- `shares`          the files of each task
"""

from gnomon.jobs.files.catalog_tables import CatalogTable, ReadTable, is_table, named_source, no_catalog
from gnomon.jobs.files.page_maps import exported_maps
from gnomon.jobs.files.scanning import check_visible, scan_file
from gnomon.jobs.files.shares import MOST_TASKS, shares_of
from gnomon.jobs.files.source_files import (
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
from gnomon.jobs.files.text_files import columns_in, infer_locally, is_inferred, merged_columns

__all__ = [
    "MOST_TASKS",
    "READERS",
    "CatalogTable",
    "Described",
    "ReadTable",
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
