"""The value maps of all pages of a chunk, to be recorded. Each page is read and unpacked once."""

from collections.abc import Iterator, Sequence

from gnomon.base.readers import RangeReader
from gnomon.sources.errors import DamagedSource, UnsupportedFormat
from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.page_decode.decompress import STREAMS_OF
from gnomon.sources.parquet.page_decode.dictionary import Dictionary
from gnomon.sources.parquet.page_decode.page import DecompressedPage
from gnomon.sources.parquet.page_decode.plain_values import NeedsPyarrow
from gnomon.sources.parquet.page_decode.value_map import LONGEST_INDICES, LONGEST_LEVELS, MappedPage
from gnomon.sources.parquet.page_header import check_page
from gnomon.sources.parquet.page_map import PageMap, Range
from gnomon.sources.parquet.schema import Leaf

TOGETHER = 8 << 20  # bytes of pages that are read at once; a larger page is read alone
READ_IN_PARTS = ("UNCOMPRESSED", "SNAPPY")  # codecs of pages, also of dictionaries, that have parts
KEPT_PAGE = 2 * (LONGEST_INDICES + LONGEST_LEVELS)  # bytes of a page whose indices a map may keep, with its header

Page = tuple[Range, int | None]  # place, and rows of a data page; None for the dictionary


def make_maps(reader: RangeReader, place: ChunkPlace, leaf: Leaf, pages: PageMap) -> Iterator[tuple[Range, MappedPage]]:
    """The places of the pages of a flat column's chunk that can have a value map, each with its map. A page that is
    damaged has none: the fetch that reads it reports the damage."""
    if not place.chunk.decodable:
        return
    for together in _batches(_candidates(place, pages)):
        for (span, rows), page in zip(together, reader.read_ranges([span for span, _ in together]), strict=True):
            made = _map_of(page, place, span[0], leaf, rows)
            if made is not None and made.saves_reads:
                yield span, made


def _candidates(place: ChunkPlace, pages: PageMap) -> list[Page]:
    """The pages that may have a map. With codecs that unpack whole pages only, these are small pages of indices; with
    codecs of streams, no dictionaries."""
    spans = zip(pages.offsets.tolist(), pages.lengths.tolist(), strict=True)
    rows = (pages.first_rows[1:] - pages.first_rows[:-1]).tolist()
    found: list[Page] = [(span, count) for span, count in zip(spans, rows, strict=True) if count]
    if CODECS[place.chunk.codec] in STREAMS_OF:
        return found
    if CODECS[place.chunk.codec] in READ_IN_PARTS:
        return [(pages.dictionary, None), *found] if pages.dictionary else found
    return [page for page in found if page[0][1] <= KEPT_PAGE] if pages.dictionary else []


def _batches(pages: Sequence[Page]) -> Iterator[list[Page]]:
    """The pages in batches of at most `TOGETHER` bytes."""
    batch: list[Page] = []
    size = 0
    for page in pages:
        length = page[0][1]
        if batch and size + length > TOGETHER:
            yield batch
            batch, size = [], 0
        batch.append(page)
        size += length
    if batch:
        yield batch


def _map_of(page: bytes, place: ChunkPlace, offset: int, leaf: Leaf, rows: int | None) -> MappedPage | None:
    try:
        header = check_page(page, place, offset, rows)
        if rows is None:
            return Dictionary(page, header, place, offset, leaf).value_map()
        return DecompressedPage(page, header, place, offset, leaf, rows).map
    except (NeedsPyarrow, DamagedSource, UnsupportedFormat):
        return None
