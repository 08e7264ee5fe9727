"""Format name to the function that opens it. A new format is one line in `FORMATS`."""

from collections.abc import Callable

from sources.contract import RangeReader, SourceFile
from sources.errors import DamagedSource, UnsupportedFormat
from sources.parquet import open_parquet
from sources.parquet.footer import ENCRYPTED_MAGIC, MAGIC
from sources.ranges import name_of, size_of

FORMATS: dict[str, Callable[[RangeReader], SourceFile]] = {
    "parquet": open_parquet,
}


def open_source(reader: RangeReader, format: str) -> SourceFile:
    """The file, its metadata read. `format` is a name in `FORMATS`; `detect` finds it by the bytes."""
    opener = FORMATS.get(format)
    if opener is None:
        raise UnsupportedFormat(f"no format {format!r}; supported: {', '.join(FORMATS)}", name_of(reader))
    return opener(reader)


def detect(reader: RangeReader) -> str:
    """The name of the format the file's first and last bytes speak of."""
    path, size = name_of(reader), size_of(reader)
    if size >= 2 * len(MAGIC):
        head = reader.read_range(0, len(MAGIC))
        end = reader.read_range(size - len(MAGIC), len(MAGIC))
        if end == ENCRYPTED_MAGIC:
            raise UnsupportedFormat("a Parquet file whose footer is encrypted, and no keys are known", path)
        if head == end == MAGIC:
            return "parquet"
        if head == MAGIC:
            raise DamagedSource("begins as a Parquet file, does not end as one: cut short? restore it", path, size)
    raise UnsupportedFormat(f"the bytes are of no supported format; supported: {', '.join(FORMATS)}", path)
