"""Pointers to rows: only from files that are unchanged, and only rows that hold the key.

- `costs`          what an answer costs
- `fetcher`        reads the rows of pointers and checks them
- `source_files`   opens source files, if they are still the indexed ones
- `results`        the rows of keys, with what they cost
- `result_tables`  the rows of keys as an Arrow table
- `row_batches`    rows grouped by source file
- `partition_columns`  the columns whose values are in the names of folders
- `limits`         limits of one answer, and the errors of larger answers
- `prefetch`       opens source files before the look-up has ended
- `page_maps`      where the pages of source files lie, recorded when they are indexed
- `maps_folder`    a local folder that keeps what fetches learned about pages across restarts
"""

from gnomon.shadow.fetch.costs import FetchReads, FetchStats, TimedStep
from gnomon.shadow.fetch.fetcher import Fetcher
from gnomon.shadow.fetch.limits import Bounds
from gnomon.shadow.fetch.maps_folder import MapsFolder
from gnomon.shadow.fetch.page_maps import (
    PAGE_MAPS_FOLDER,
    check_format,
    page_maps_path,
    prove_page_maps,
    without_maps,
    write_page_maps,
)
from gnomon.shadow.fetch.partition_columns import PartitionColumns
from gnomon.shadow.fetch.prefetch import Ahead
from gnomon.shadow.fetch.result_tables import answer_table
from gnomon.shadow.fetch.results import Answer, Found, Query, Rows, answers

__all__ = [
    "PAGE_MAPS_FOLDER",
    "Ahead",
    "Answer",
    "Bounds",
    "FetchReads",
    "FetchStats",
    "Fetcher",
    "Found",
    "MapsFolder",
    "PartitionColumns",
    "Query",
    "Rows",
    "TimedStep",
    "answer_table",
    "answers",
    "check_format",
    "page_maps_path",
    "prove_page_maps",
    "without_maps",
    "write_page_maps",
]
