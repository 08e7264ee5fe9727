"""The rows of many keys.

- `key_files`     key columns of files
- `columns`       the columns of a load, and their types
- `batches`       batches of rows, joined, divided and written
- `row_reader`    pointers to rows
- `load_locally`  the load in this process
"""

from gnomon.jobs.load.batches import gathered, joined, new_file, runs, whole_file, write_parquet
from gnomon.jobs.load.columns import (
    NoType,
    check_given,
    check_sample,
    check_unreadable,
    common_type,
    first_refused,
    in_type,
    payload_columns,
    reader_of,
    source_columns,
)
from gnomon.jobs.load.key_files import KeyFile, key_file
from gnomon.jobs.load.load_locally import LoadRequest, load, load_locally
from gnomon.jobs.load.row_reader import (
    ERROR,
    FILE,
    OFFSET,
    SIZE,
    SUB_OFFSET,
    FetchCounters,
    LoadCounters,
    LookupCounters,
    OutputColumns,
    RowReader,
)

__all__ = [
    "ERROR",
    "FILE",
    "OFFSET",
    "SIZE",
    "SUB_OFFSET",
    "FetchCounters",
    "KeyFile",
    "LoadCounters",
    "LoadRequest",
    "LookupCounters",
    "NoType",
    "OutputColumns",
    "RowReader",
    "check_given",
    "check_sample",
    "check_unreadable",
    "common_type",
    "first_refused",
    "gathered",
    "in_type",
    "joined",
    "key_file",
    "load",
    "load_locally",
    "new_file",
    "payload_columns",
    "reader_of",
    "runs",
    "source_columns",
    "whole_file",
    "write_parquet",
]
