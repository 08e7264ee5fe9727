"""Text files: CSV and JSON lines. The pointer of a row is the byte at which its record begins.

- `text_file`    the `SourceFile` of both: scans blocks of records, fetches single records
- `grammar`      what CSV and JSON lines implement for `text_file`
- `open_text`    encoding, compression and digest of a file
- `decompress`   compressed text, read from its beginning
- `csv`          CSV: dialect, header, columns
- `csv_block`    the records in a block of CSV
- `csv_infer`    the types of CSV columns
- `jsonl`        JSON lines
- `write_csv`    CSV files written like another one of their source
- `write_jsonl`  JSON lines written like another one of their source
"""

from gnomon.sources.text.csv import CSV_OPTIONS, RAGGED, infer_csv, merge_csv, open_csv
from gnomon.sources.text.jsonl import JSON_OPTIONS, infer_jsonl, open_jsonl
from gnomon.sources.text.open_text import flag
from gnomon.sources.text.write_csv import csv_style
from gnomon.sources.text.write_jsonl import jsonl_style

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
