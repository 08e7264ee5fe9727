"""Avro object container files, block by block.

- `reader`          the `SourceFile`: opens a file, scans, fetches; the same for the files of an Iceberg table
- `container`       header, blocks, sync markers, compression of blocks
- `schema`          the schema in the header, as a graph of types
- `columns`         how a column is read, skipped, or made an Arrow array
- `leaf_arrays`     decoded values of one column as an Arrow array
- `recursive_json`  values of recursive types, as JSON text; how many elements a batch may hold
- `rows`            compiled decoders; all rows of a file or a split, or the ones at pointers
- `write`           Avro files written like another one of their source
"""

from gnomon.sources.avro.container import MAGIC
from gnomon.sources.avro.reader import MOST_BLOCK_ROWS, AvroFile, numbers_of_rows, open_avro, open_iceberg_avro
from gnomon.sources.avro.write import avro_style

__all__ = [
    "MAGIC",
    "MOST_BLOCK_ROWS",
    "AvroFile",
    "avro_style",
    "numbers_of_rows",
    "open_avro",
    "open_iceberg_avro",
]
