"""Page maps on a store: the places of the pages of each source file, recorded when it is indexed, so that the first
fetch from it reads no page headers; with value maps, only parts of pages. A file of the index has the blocks of several
source files, one after the other; each is read by its range.
"""

import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

from gnomon.base.actions import Action
from gnomon.shadow.errors import DamagedIndexFile, DamagedMetadata, UsageError
from gnomon.shadow.metadata import PageMapsEntry, SourceFileEntry, StoredFile, put_again, read_back
from gnomon.shadow.storage import ReadStats, Storage
from gnomon.sources import FORMATS, DamagedMaps, check_maps, maps_have_values

PAGE_MAPS_FOLDER = "_shadow/page_maps"
PAGE_MAPS_SUFFIX = ".maps"
READERS = 16  # files of page maps that are read at the same time


def check_format(format: str) -> None:
    """UsageError for a format whose files have no page maps."""
    if FORMATS[format].page_maps is None:
        having = ", ".join(name for name, one in FORMATS.items() if one.page_maps is not None)
        raise UsageError(f"--page-maps: files of format {format} have no page maps; expected {having}, or leave it out")


def page_maps_path(segment_id: str, number: int) -> str:
    """`_shadow/page_maps/<segment>/00003.maps`"""
    return f"{PAGE_MAPS_FOLDER}/{segment_id}/{number:05d}{PAGE_MAPS_SUFFIX}"


def write_page_maps(storage: Storage, path: str, blocks: Sequence[bytes]) -> list[PageMapsEntry]:
    """Write the blocks of some source files into one file, and read it back. Returns the place of each."""
    put_again(storage, path, blocks)
    ends = list(accumulate(map(len, blocks)))
    size = ends[-1] if ends else 0
    placed = [
        PageMapsEntry(path, size, end - len(block), len(block), zlib.crc32(block))
        for block, end in zip(blocks, ends, strict=True)
    ]
    data = read_back(storage, path)
    for entry in placed:
        _check(entry, data[entry.offset : entry.offset + entry.length], f"{storage.root}/{path}")
    return placed


def read_page_maps(storage: Storage, entry: PageMapsEntry, stats: ReadStats | None = None) -> bytes:
    """A block. IndexFileGone or DamagedIndexFile where its file is missing or has other bytes than were written."""
    file = StoredFile(storage, entry.path, entry.size, Action.BUILD_PAGE_MAPS, stats)
    data = file.read_range(entry.offset, entry.length)
    _check(entry, data, file.name)
    return data


def prove_page_maps(storage: Storage, format: str, entry: PageMapsEntry, digest: str) -> bytes:
    """A block, after a check that it is whole and belongs to the source file with this digest. Errors as in
    `read_page_maps`."""
    data = read_page_maps(storage, entry)
    try:
        check_maps(format, data, digest)
    except DamagedMaps as error:
        raise damaged(storage, entry, error) from None
    return data


def damaged(storage: Storage, entry: PageMapsEntry, error: DamagedMaps) -> DamagedIndexFile:
    return DamagedIndexFile(str(error), f"{storage.root}/{entry.path}", entry.offset, action=Action.BUILD_PAGE_MAPS)


def without_maps(
    storage: Storage, format: str, files: Iterable[SourceFileEntry], deep: bool = False
) -> list[SourceFileEntry]:
    """The non-empty files without readable page maps; with `deep`, also those without value maps."""

    def lacks(file: SourceFileEntry) -> bool:
        if file.page_maps is None:
            return True
        try:
            maps = prove_page_maps(storage, format, file.page_maps, file.digest)
        except (DamagedMetadata, DamagedIndexFile):
            return True
        return deep and not maps_have_values(format, maps)

    there = [file for file in files if file.rows]
    with ThreadPoolExecutor(READERS) as pool:
        return [file for file, found in zip(there, pool.map(lacks, there), strict=True) if found]


def _check(entry: PageMapsEntry, data: bytes, where: str) -> None:
    found = zlib.crc32(data)
    if found != entry.crc32:
        raise DamagedIndexFile(
            "page maps",
            where,
            entry.offset,
            expected=f"CRC {entry.crc32:08x}",
            found=f"{found:08x}",
            action=Action.BUILD_PAGE_MAPS,
        )
