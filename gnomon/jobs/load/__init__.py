"""The rows of many keys.

- `key_columns`   keys of a sample, or of a file, in the types of an index
- `columns`       the columns of a load, and their types
- `batches`       batches of rows, joined, divided and written
- `row_reader`    pointers to rows
- `load_locally`  the load in this process
"""

from gnomon.jobs.load.batches import gathered, runs, write_parquet
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
from gnomon.jobs.load.key_columns import (
    KEY_PREFIX,
    KeyFile,
    as_returned,
    is_text,
    key_file,
    key_names,
    missing_keys,
    narrowing,
    plain_values,
    sample_types,
    stored_keys,
    typed_key,
    typed_keys,
)
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
    "KEY_PREFIX",
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
    "as_returned",
    "check_given",
    "check_sample",
    "check_unreadable",
    "common_type",
    "first_refused",
    "gathered",
    "in_type",
    "is_text",
    "key_file",
    "key_names",
    "load",
    "load_locally",
    "missing_keys",
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
