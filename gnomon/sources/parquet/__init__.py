"""Parquet, at page level: a fetch of one row reads one page per column.

- `reader`          the `SourceFile`: opens a file, runs a fetch, scans
- `footer`          the footer, parsed without pyarrow, with the tree of columns
- `thrift`          Thrift's compact protocol
- `page_header`     page headers, the checks of a page, checks around pyarrow
- `page_map`        the place of each page of a chunk: from the page index, or from page headers
- `value_map`       where the values of a page lie, to read and unpack a part of it
- `map_codec`       page maps and value maps as bytes, to be recorded in an index
- `read_plan`       the reads of a fetch, for each column and row group
- `known_rows`      single rows whose bytes memory knows, as Python values
- `row_reads`       reads of single rows, and how the rows of all reads become Arrow arrays
- `dictionary`      the dictionary of a chunk, whole or single entries; what fetches keep for later ones
- `page`            a decompressed page, from which rows are decoded; the maps of all pages of a chunk
- `page_values`     a page's content, decompressed, and the values in it
- `whole_reads`     reads of whole pages or row groups, which pyarrow decodes; scans
- `synthetic_file`  Parquet files made in memory, which pyarrow decodes; the Arrow schema of a file
- `write`           Parquet files written like another one of their source
"""

from gnomon.sources.parquet.footer import ENCRYPTED_MAGIC, MAGIC
from gnomon.sources.parquet.map_codec import DamagedMaps, check_maps, have_values
from gnomon.sources.parquet.reader import ParquetFile, open_parquet
from gnomon.sources.parquet.write import ParquetStyle, parquet_style

__all__ = [
    "ENCRYPTED_MAGIC",
    "MAGIC",
    "DamagedMaps",
    "ParquetFile",
    "ParquetStyle",
    "check_maps",
    "have_values",
    "open_parquet",
    "parquet_style",
]
