"""Parquet, at page level: one row costs one page a column.

reader       the `SourceFile`: opens, runs a fetch, scans; `plan` says what a fetch reads
footer       the footer, parsed by ourselves; `schema` its tree of columns, `thrift` its bytes
pages        where the pages lie; `recorded` the same as bytes to keep; `page_header` what is checked of a page
pick         few rows of a page: `unpack` its bytes, the page `unpacked`, `hybrid` its levels and indices, `values`,
             `dictionaries`; `picked`, `plain` and `pieces` make Arrow arrays of them;
             `bare` has pyarrow decode without the file's schema
reads        many rows of a page, or whole row groups; `wrap` the file in memory that pyarrow decodes;
             `agreement` whether it found as many values in each leaf
write        further files as one of them is
arrow_types  the Arrow schema and the footer templates; `scan` the rows of one row group,
             `watched` the file it has pyarrow read
"""

from sources.parquet.reader import ParquetFile, open_parquet
from sources.parquet.recorded import DamagedMaps, check_maps

__all__ = ["DamagedMaps", "ParquetFile", "check_maps", "open_parquet"]
