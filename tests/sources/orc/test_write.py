"""ORC files that are written in the style of a file of their source."""

import pyarrow as pa
import pytest
from pyarrow import orc

from gnomon.sources import UnsupportedFormat, open_writer, style_of
from tests.sources.readers import BytesReader
from tests.sources.written import rows_of, written

TABLE = pa.table({"n": [1, 2, None], "text": ["a", None, ""]})


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_the_codec_is_that_of_the_file(codec: str) -> None:
    out = pa.BufferOutputStream()
    orc.write_table(TABLE, out, compression=codec)
    own = BytesReader(out.getvalue().to_pybytes(), "lake/part.orc")
    file = written(TABLE, "orc", {}, like=own)
    assert orc.ORCFile(pa.BufferReader(file.data)).compression.lower() == codec
    assert rows_of(file, "orc", {}) == TABLE


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (pa.array([5, -1], pa.timestamp("us")), "an instant before 1970 has a fraction of a second"),
        (pa.array([[5], [-1_000_001]], pa.list_(pa.timestamp("us", "UTC"))), "an instant before 1970 has a fraction"),
        (pa.array([0, -141_428], pa.int32()).view(pa.date32()), "a day before 1582-10-15"),
        (pa.array([-62_135_596_800_000_000], pa.timestamp("us")), "a day before 1582-10-15"),
    ],
)
def test_moments_that_java_would_read_wrongly_are_refused(array: pa.Array, why: str) -> None:
    writer = open_writer(style_of(None, "orc"), pa.schema([("x", array.type)]), "lake/new")
    with pytest.raises(UnsupportedFormat, match=f"^lake/new: column x: {why}"):
        writer.write(pa.record_batch({"x": array}))


def test_whole_seconds_before_1970_are_written() -> None:
    table = pa.table({"x": pa.array([-1_000_000_000, 0, -86_400_000_000_000, None], pa.timestamp("ns"))})
    assert rows_of(written(table, "orc", {}), "orc", {}) == table


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.time64("us"), pa.float16(), pa.decimal256(40, 0), pa.uuid(), pa.null()]
)
def test_types_that_orc_does_not_have_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedFormat, match=r"^lake/new: column x: .*: ORC has no such type"):
        open_writer(style_of(None, "orc"), pa.schema([("x", kind)]), "lake/new")
