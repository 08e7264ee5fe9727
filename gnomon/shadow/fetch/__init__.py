"""Pointers to rows: only from files that are unchanged, and only rows that hold the key.

- `fetcher`        reads the rows of pointers and checks them
- `source_files`   opens source files, if they are still the indexed ones, and counts what they cost
- `results`        the rows of keys within limits
- `result_tables`  the rows of keys as an Arrow table
- `page_maps`      where the pages of source files lie, recorded or learned
"""

from gnomon.shadow.fetch.fetcher import Ahead, Fetcher, PartitionColumns
from gnomon.shadow.fetch.page_maps import (
    PAGE_MAPS_FOLDER,
    LearnedMaps,
    check_format,
    page_maps_path,
    prove_page_maps,
    without_maps,
    write_page_maps,
)
from gnomon.shadow.fetch.result_tables import answer_table, number_column
from gnomon.shadow.fetch.results import Answer, Bounds, Found, Query, Rows, answers
from gnomon.shadow.fetch.source_files import FetchReads, FetchStats, TimedStep

__all__ = [
    "PAGE_MAPS_FOLDER",
    "Ahead",
    "Answer",
    "Bounds",
    "FetchReads",
    "FetchStats",
    "Fetcher",
    "Found",
    "LearnedMaps",
    "PartitionColumns",
    "Query",
    "Rows",
    "TimedStep",
    "answer_table",
    "answers",
    "check_format",
    "number_column",
    "page_maps_path",
    "prove_page_maps",
    "without_maps",
    "write_page_maps",
]
