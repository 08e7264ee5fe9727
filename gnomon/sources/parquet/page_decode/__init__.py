"""Single rows of a page, decoded without the rest of the page.

- `select`            the pages of a chunk that hold the rows, and their rows
- `page`              one data page, decompressed, from which rows are decoded
- `decompress`        a page's bytes, decompressed to exactly the size in its header
- `rle`               single numbers of the RLE / bit-packing hybrid
- `plain_values`      the values of a page or dictionary, in the PLAIN encoding
- `pieces`            which parts of a page can be unpacked without the rest
- `value_map`         where the values of a page lie, to read and unpack a part of it
- `value_maps`        the maps of a file's pages, recorded or made by the first fetch from each
- `make_maps`         the maps of all pages of a chunk, to be recorded
- `part_reads`        the parts of a mapped page that a fetch reads
- `dictionary`        a dictionary page that was read whole
- `dictionary_cache`  dictionaries of chunks, bounded by bytes over all files
- `dictionary_read`   the entries of a dictionary that a fetch needs
- `leaf_rows`         rows of one leaf, and how they become Arrow arrays
- `assemble`          the pieces of all columns, put together as Arrow arrays
"""

from gnomon.sources.parquet.page_decode.assemble import RowAssembler
from gnomon.sources.parquet.page_decode.decompress import decompress_page
from gnomon.sources.parquet.page_decode.dictionary_cache import DictionaryCache
from gnomon.sources.parquet.page_decode.leaf_rows import encode_levels
from gnomon.sources.parquet.page_decode.make_maps import make_maps
from gnomon.sources.parquet.page_decode.part_reads import PageCaches
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow, decoding, level_section
from gnomon.sources.parquet.page_decode.select import LeafRead, RowRead
from gnomon.sources.parquet.page_decode.value_map import MappedPage, Stored, are_alike, restored
from gnomon.sources.parquet.page_decode.value_maps import PageKey, ValueMaps

__all__ = [
    "DictionaryCache",
    "LeafRead",
    "MappedPage",
    "NeedsPyarrow",
    "PageCaches",
    "PageKey",
    "RowAssembler",
    "RowRead",
    "Stored",
    "ValueMaps",
    "are_alike",
    "decoding",
    "decompress_page",
    "encode_levels",
    "level_section",
    "make_maps",
    "restored",
]
