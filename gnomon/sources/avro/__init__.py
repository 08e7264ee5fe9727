"""Avro object container files, block by block.

- `reader`          the `SourceFile`: opens a file, scans, fetches
- `iceberg_file`    the same for the files of an Iceberg table
- `container`       header, blocks, sync markers
- `codecs`          compression of blocks
- `block_records`   the records of a block, decompressed and checked
- `schema`          the schema in the header, as a graph of types
- `columns`         how a column is read, skipped, or made an Arrow array
- `nested_columns`  the same for records, arrays, maps and unions
- `decoder`         compiles the decoder of the rows, for a choice of columns
- `codegen`         the decoder's Python source
- `leaf_arrays`     decoded values of one column as an Arrow array
- `arrow_buffers`   Python lists as Arrow buffers
- `recursive_json`  values of recursive types, as JSON text
- `scan`            all rows of a file or a split, with their pointers
- `fetch`           rows at pointers
- `write`           Avro files written like another one of their source
- `encode`          Arrow columns as the bytes of Avro values
- `limits`          how many elements a batch may hold
- `errors`          errors without file and position, which the reader adds
"""

from gnomon.sources.avro.container import MAGIC
from gnomon.sources.avro.iceberg_file import MOST_BLOCK_ROWS, numbers_of_rows, open_iceberg_avro
from gnomon.sources.avro.reader import AvroFile, open_avro
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
