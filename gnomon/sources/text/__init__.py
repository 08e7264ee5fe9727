"""Text files: CSV and JSON lines. The pointer of a row is the byte at which its record begins.

- `text_file`  opens text files; the `SourceFile`: scans blocks of records, fetches single records
- `csv`        CSV: dialect, header, columns; new files
- `csv_block`  the records in a block of CSV
- `jsonl`      JSON lines, and new files of them
"""

from gnomon.sources.text.csv import CSV_OPTIONS, RAGGED, csv_style, infer_csv, merge_csv, open_csv
from gnomon.sources.text.jsonl import JSON_OPTIONS, infer_jsonl, jsonl_style, open_jsonl
from gnomon.sources.text.text_file import flag

__all__ = [
    "CSV_OPTIONS",
    "JSON_OPTIONS",
    "RAGGED",
    "csv_style",
    "flag",
    "infer_csv",
    "infer_jsonl",
    "jsonl_style",
    "merge_csv",
    "open_csv",
    "open_jsonl",
]
