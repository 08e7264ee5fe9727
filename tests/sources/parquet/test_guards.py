"""Pages that declare impossible sizes are refused before pyarrow, which scans the file, allocates these sizes."""

import pytest

from gnomon.sources import DamagedSource, open_source
from gnomon.sources.parquet.footer import CODECS, ChunkPlace
from gnomon.sources.parquet.page_header import GROWTH, PageCheckingFile, read_header
from gnomon.sources.parquet.thrift import integer
from tests.sources.parquet.test_page_map import places_of
from tests.sources.parquet_files import flat_table, written
from tests.sources.readers import BytesReader

DATA = written(flat_table().select(["text"]), use_dictionary=False, compression="snappy", row_group_size=300)
PLACE = places_of(DATA)[0]._replace(path="lake/bomb")


def pages(data: bytes, place: ChunkPlace) -> list[int]:
    """The offset of each page of a chunk."""
    found, at = [], place.chunk.start
    while at < place.chunk.start + place.chunk.compressed:
        found.append(at)
        header = read_header(data, at)
        at += header.length + header.compressed
    return found


def claiming(page: int, field: str, claimed: int) -> bytes:
    """The file with another size in the header of a page. The page has fewer bytes, to compensate the longer header."""
    header = read_header(DATA, page)
    unpacked, packed = integer(header.uncompressed), integer(header.compressed)
    known, number = DATA[page : page + 3], integer(claimed)
    assert DATA[page:].startswith(known + unpacked + b"\x15" + packed)
    new = number + b"\x15" + packed if field == "uncompressed" else unpacked + b"\x15" + number
    rest = page + 3 + len(unpacked) + 1 + len(packed)
    end = page + header.length + header.compressed
    return DATA[: page + 3] + (new + DATA[rest:end])[: end - page - 3] + DATA[end:]


def read_through(data: bytes, step: int) -> None:
    with PageCheckingFile(BytesReader(data, "lake/bomb"), b"tail", [PLACE]) as file:
        file.seek(PLACE.chunk.start)
        while file.tell() < PLACE.chunk.start + PLACE.chunk.compressed:
            file.read(step)


@pytest.mark.parametrize("step", [1, 7, 100, 1 << 20])
def test_sound_pages_pass_however_they_are_read(step: int) -> None:
    assert len(pages(DATA, PLACE)) > 5
    read_through(DATA, step)


@pytest.mark.parametrize("step", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("field", ["compressed", "uncompressed"])
@pytest.mark.parametrize("page", [0, 3])
def test_a_page_that_cannot_be_is_refused_at_its_offset(page: int, field: str, step: int) -> None:
    offset = pages(DATA, PLACE)[page]
    with pytest.raises(DamagedSource, match=f"lake/bomb at byte {offset}: column text: row group 0: page of "):
        read_through(claiming(offset, field, (1 << 31) - 1), step)


@pytest.mark.parametrize("field", ["compressed", "uncompressed"])
def test_a_scan_refuses_a_page_that_claims_gigabytes(field: str) -> None:
    offset = pages(DATA, PLACE)[2]
    reader = BytesReader(claiming(offset, field, (1 << 31) - 1), "lake/bomb")
    source = open_source(reader, "parquet")
    with pytest.raises(DamagedSource, match=f"lake/bomb at byte {offset}: column text: row group 0: page of "):
        list(source.scan(reader, ["text"]))


def test_each_codec_that_is_read_has_a_limit_of_its_pages() -> None:
    assert set(GROWTH) == set(CODECS.values())
