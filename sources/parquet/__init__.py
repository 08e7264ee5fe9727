"""Parquet, at page level: one row costs one page a column.

reader       the `SourceFile`: opens, plans and runs a fetch, scans
footer       the footer, parsed by ourselves; `schema` its tree of columns, `thrift` its bytes
pages        where the pages lie; `page_header` what is checked of one
reads        what a fetch reads and decodes; `wrap` the file in memory that pyarrow decodes
arrow_types  the Arrow schema and the footer templates; `scan` the rows of one row group
"""

from sources.parquet.reader import ParquetFile, open_parquet

__all__ = ["ParquetFile", "open_parquet"]
