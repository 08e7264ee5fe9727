"""What every source format promises. A format's test module subclasses `SourceContract` and says, in a fixture
named `sample`, which file to hold it to."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from sources import SourceError, open_source
from sources.pointer import OFFSET, SIZE, SUB_OFFSET
from tests.sources.readers import BytesReader

POINTER = (OFFSET, SUB_OFFSET, SIZE)


@dataclass(frozen=True)
class Sample:
    """`rows` as another library reads them. `one_row_bytes`: no fetch of one row, all columns, reads more once
    the file's pages are known."""

    data: bytes
    format: str
    rows: list[dict[str, object]]
    one_row_bytes: int

    def reader(self) -> BytesReader:
        return BytesReader(self.data, "lake/sample")


def pointers_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [
        pointer
        for batch in batches
        for pointer in zip(batch[OFFSET].to_pylist(), batch[SUB_OFFSET].to_pylist(), strict=True)
    ]


class SourceContract:
    def test_scan_gives_every_row_once_in_file_order_and_then_the_pointer(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        batches = list(source.scan(reader, source.schema.names))
        assert batches[0].schema.names == [*source.schema.names, *POINTER]
        assert [batch.schema.field(name).type for batch in batches[:1] for name in POINTER] == [
            pa.int64(),
            pa.int32(),
            pa.int32(),
        ]
        assert [row for batch in batches for row in batch.drop_columns(list(POINTER)).to_pylist()] == sample.rows
        assert source.rows == len(sample.rows)
        assert all(size >= 1 for batch in batches for size in batch[SIZE].to_pylist())

    def test_each_scanned_row_comes_back_from_its_own_pointer(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        for pointer, row in zip(pointers_of(source.scan(reader, [])), sample.rows, strict=True):
            table = source.fetch(reader, [pointer], source.schema.names)
            assert table.to_pylist() == [row]
            assert table.schema == source.schema

    def test_pointers_may_come_in_any_order_and_repeated(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        pointers = pointers_of(source.scan(reader, []))
        asked = [len(pointers) - 1, 0, *range(0, len(pointers), 7), 0, len(pointers) // 2, len(pointers) - 1]
        table = source.fetch(reader, [pointers[i] for i in asked], source.schema.names)
        assert table.to_pylist() == [sample.rows[i] for i in asked]

    def test_columns_come_in_the_order_asked(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        names = source.schema.names[::-1]
        table = source.fetch(reader, pointers_of(source.scan(reader, []))[:1], names)
        assert table.schema.names == names
        batch = next(source.scan(reader, names))
        assert batch.schema.names == [*names, *POINTER]

    def test_no_pointers_give_no_rows_in_the_right_types(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        table = source.fetch(reader, [], source.schema.names)
        assert table.num_rows == 0
        assert table.schema == source.schema

    def test_one_pointer_reads_a_bounded_number_of_bytes(self, sample: Sample) -> None:
        reader = sample.reader()
        source = open_source(reader, sample.format)
        pointers = pointers_of(source.scan(reader, []))
        source.fetch(reader, pointers, source.schema.names)
        for pointer in pointers[:: max(len(pointers) // 20, 1)]:
            reader.forget()
            source.fetch(reader, [pointer], source.schema.names)
            assert reader.bytes_read <= sample.one_row_bytes
            assert reader.rounds == 1

    def test_a_cut_file_gives_an_error_that_names_it(self, sample: Sample) -> None:
        for kept in (0, 3, len(sample.data) // 3, len(sample.data) - 1):
            reader = BytesReader(sample.data[:kept], "lake/cut")
            with pytest.raises(SourceError, match="lake/cut") as caught:
                open_source(reader, sample.format)
            assert caught.value.path == "lake/cut"

    def test_the_digest_is_of_the_content_alone(self, sample: Sample) -> None:
        digest = open_source(sample.reader(), sample.format).digest
        assert digest == open_source(BytesReader(sample.data, "elsewhere"), sample.format).digest
        int(digest, 16)
