"""Sound CSV and JSON files for the fuzzer: our small ones, and those of the corpora, if present."""

import gzip
from collections.abc import Mapping
from functools import cache

from tests.sources.corpora import files_of, reader_of

Seeds = list[tuple[bytes, Mapping[str, str]]]
LARGEST = 20_000  # bytes of a file

CSV = b'id,name,x\r\n1,"a ""b""\r\nc",1.5\r\n\r\n2,,\r\n3,\xc3\xa9,-2e3\r\n4,"d",5" disk\r\n'
DATES = b"d|t|n|m\n2020-01-31|2020-01-31 23:59:59.5|12.50|true\n1500-1-3|2020-01-31T00:00:00+01:00|-3|FALSE\n|||\n"
TYPES = "d date, t timestamp, n decimal(10,2), m boolean"
JSON = (
    '{"a":1,"b":[{"c":"é","t":"2020-01-31"},null],"d":1.5,"m":{"k":12345678901234567890}}\n\n'
    '{"a":-2,"d":"2020-01-31","n":12.50}\r\n{"b":[],"a":9007199254740993}\n{"a":0.5,"d":{"x":[1,  2]}}\n'
    '{"a":-Infinity}\n'
).encode()
JSON_TYPES = "a double, b array<struct<c:string,t:timestamp>>, d string, m map<string,decimal(38,0)>, n decimal(9,3)"


@cache
def csv_seeds() -> Seeds:
    found: Seeds = [
        (CSV, {}),
        (CSV, {"schema": "id bigint, name string, x string"}),
        (CSV, {"header": "false", "escape": "\\"}),
        (DATES, {"delimiter": "|", "schema": TYPES, "multiline": "false"}),
        (DATES, {"delimiter": "|", "infer_schema": "true"}),
        (gzip.compress(CSV), {"whole_file": "true"}),
    ]
    return found + [(data, {"header": "false", "whole_file": "true"}) for data in _foreign("csv")]


@cache
def jsonl_seeds() -> Seeds:
    found: Seeds = [(JSON, {}), (JSON, {"schema": JSON_TYPES}), (gzip.compress(JSON), {"whole_file": "true"})]
    return found + [(data, {"whole_file": "true"}) for data in _foreign("json")]


def _foreign(format: str) -> list[bytes]:
    files = [reader_of(one.values[0]).data for one in files_of(format, "good")]
    return [data for data in files if len(data) <= LARGEST and not data.startswith(b"\x1f\x8b")]
