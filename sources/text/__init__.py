"""Text, one record a line or nearly: CSV and JSON lines. A pointer is the byte at which a record begins.

file      the `SourceFile` of both: scans blocks of whole records, fetches single ones
csv       what a record of CSV is, and its columns; `csv_block` its bytes, many records at once
jsonl     the same of JSON lines; `sources.json_values` and `sources.json_infer` know their values
opening   what both ask of a file before they read it: encoding, compression, digest
write_csv, write_jsonl    further files as one of them is; `write_values` the texts of values
unpack    compressed files, from their beginning only
"""

from sources.text.csv import CSV_OPTIONS, infer_csv, merge_csv, open_csv
from sources.text.jsonl import JSON_OPTIONS, infer_jsonl, open_jsonl

__all__ = ["CSV_OPTIONS", "JSON_OPTIONS", "infer_csv", "infer_jsonl", "merge_csv", "open_csv", "open_jsonl"]
