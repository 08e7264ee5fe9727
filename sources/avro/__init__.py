"""Avro object container files, block by block.

reader     the `SourceFile`: opens; `scan` gives all rows, `fetch` those at pointers
container  header, blocks, sync markers; `codecs` unpacks, `records` checks what came of it
schema     the types that the header declares; `columns` and `nested` make columns of them
decoder    compiles, for the columns asked for, what reads rows; `program` is its text
values     from what was read (`from_lists`) to Arrow; `json_text` for types that hold themselves
write      further files with the schema of one of them; `encode` columns to bytes
varint     numbers; `budget` how much they may claim; `failures` what can be wrong
"""

from sources.avro.reader import AvroFile, open_avro

__all__ = ["AvroFile", "open_avro"]
