"""Parquet, at page level: a fetch of one row reads one page per column.

- `reader`          the `SourceFile`: opens a file, runs a fetch, scans
- `footer`          the footer, parsed without pyarrow
- `schema`          the tree of columns in the footer
- `thrift`          Thrift's compact protocol
- `arrow_types`     the Arrow schema, and a footer template for each choice of columns
- `page_header`     page headers, and the checks of a page
- `page_map`        the place of each page of a chunk: from the page index, or from page headers
- `page_map_codec`  page maps as bytes, to be recorded in an index
- `value_map_codec` value maps as bytes, which follow the page maps
- `read_plan`       the reads of a fetch, for each column and row group
- `page_reads`      reads of whole pages or row groups, which pyarrow decodes
- `recode`          pages that pyarrow misreads or refuses, written again
- `page_decode`     single rows of a page, decoded without the rest of it
- `synthetic_file`  Parquet files made in memory, which pyarrow decodes
- `scan`            the rows of one row group, with their pointers
- `guards`          checks around pyarrow: page headers, lengths of leaves
- `write`           Parquet files written like another one of their source
"""

from gnomon.sources.parquet.arrow_types import INT96_TYPE, PHYSICAL_TYPE
from gnomon.sources.parquet.footer import ENCRYPTED_MAGIC, MAGIC, OLD_CALENDAR
from gnomon.sources.parquet.page_map_codec import check_maps, have_values
from gnomon.sources.parquet.reader import ParquetFile, open_parquet
from gnomon.sources.parquet.value_map_codec import DamagedMaps
from gnomon.sources.parquet.write import ParquetStyle, parquet_style

__all__ = [
    "ENCRYPTED_MAGIC",
    "INT96_TYPE",
    "MAGIC",
    "OLD_CALENDAR",
    "PHYSICAL_TYPE",
    "DamagedMaps",
    "ParquetFile",
    "ParquetStyle",
    "check_maps",
    "have_values",
    "open_parquet",
    "parquet_style",
]
