"""The rows of many keys.

- `arguments`     the arguments of a load
- `counters`      the counts of a load
- `key_columns`   keys of a sample in the types of an index
- `key_files`     the key columns of a file
- `column_types`  the types of the columns of a load
- `task_batches`  the batches of rows in a task
- `row_reader`    pointers to rows
- `load_locally`  the load in this process
- `parquet_rows`  rows as Parquet files
"""

from gnomon.jobs.load.arguments import check_given, check_sample, check_unreadable, payload_columns, reader_of
from gnomon.jobs.load.column_types import NoType, common_type, first_refused, in_type, source_columns
from gnomon.jobs.load.counters import Count, FetchCounters, LoadCounters, LookupCounters
from gnomon.jobs.load.key_columns import (
    KEY_PREFIX,
    as_returned,
    key_names,
    narrowing,
    plain_values,
    sample_types,
    stored_keys,
    typed_key,
    typed_keys,
)
from gnomon.jobs.load.key_files import KeyFile, key_file
from gnomon.jobs.load.load_locally import LoadRequest, load, load_counters, load_locally
from gnomon.jobs.load.parquet_rows import write_parquet
from gnomon.jobs.load.row_reader import ERROR, FILE, OFFSET, SIZE, SUB_OFFSET, OutputColumns, RowReader
from gnomon.jobs.load.task_batches import gathered, runs

__all__ = [
    "ERROR",
    "FILE",
    "KEY_PREFIX",
    "OFFSET",
    "SIZE",
    "SUB_OFFSET",
    "Count",
    "FetchCounters",
    "KeyFile",
    "LoadCounters",
    "LoadRequest",
    "LookupCounters",
    "NoType",
    "OutputColumns",
    "RowReader",
    "as_returned",
    "check_given",
    "check_sample",
    "check_unreadable",
    "common_type",
    "first_refused",
    "gathered",
    "in_type",
    "key_file",
    "key_names",
    "load",
    "load_counters",
    "load_locally",
    "narrowing",
    "payload_columns",
    "plain_values",
    "reader_of",
    "runs",
    "sample_types",
    "source_columns",
    "stored_keys",
    "typed_key",
    "typed_keys",
    "write_parquet",
]
