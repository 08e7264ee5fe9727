"""The contract of every source format. A format's test module subclasses `SourceContract`, with a fixture `sample` for
the file to test."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from gnomon.sources import RangeReader, SourceError, SourceFile, open_source
from gnomon.sources.pointers import OFFSET, SIZE, SUB_OFFSET
from tests.sources.readers import BytesReader

POINTER = (OFFSET, SUB_OFFSET, SIZE)


@dataclass(frozen=True)
class Sample:
    """A file with the `rows` that another library reads. `one_row_bytes`: the most bytes of a fetch of one row, all
    columns, when the file's pages are known. `knows_rows`: its metadata has the number of rows. `cut_is_seen`: a cut
    file is refused when it is opened, not only when it is scanned."""

    data: bytes
    format: str
    rows: list[dict[str, object]]
    one_row_bytes: int
    options: Mapping[str, str] = field(default_factory=dict)
    knows_rows: bool = True
    cut_is_seen: bool = True

    def reader(self) -> BytesReader:
        return BytesReader(self.data, "lake/sample")

    def open(self, reader: RangeReader) -> SourceFile:
        return open_source(reader, self.format, self.options)


def pointers_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [
        pointer
        for batch in batches
        for pointer in zip(batch[OFFSET].to_pylist(), batch[SUB_OFFSET].to_pylist(), strict=True)
    ]


def read_all(sample: Sample, reader: BytesReader) -> None:
    """Open the file, and scan it if only a scan shows that it was cut."""
    source = sample.open(reader)
    if not sample.cut_is_seen:
        for _ in source.scan(reader, source.schema.names):
            pass


class SourceContract:
    def test_scan_gives_every_row_once_in_file_order_and_then_the_pointer(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        batches = list(source.scan(reader, source.schema.names))
        assert batches[0].schema.names == [*source.schema.names, *POINTER]
        assert [batch.schema.field(name).type for batch in batches[:1] for name in POINTER] == [
            pa.int64(),
            pa.int32(),
            pa.int32(),
        ]
        assert [row for batch in batches for row in batch.drop_columns(list(POINTER)).to_pylist()] == sample.rows
        assert source.rows == (len(sample.rows) if sample.knows_rows else None)
        assert source.row_bytes >= 1
        assert all(size >= 1 for batch in batches for size in batch[SIZE].to_pylist())

    def test_splits_give_the_same_rows_each_once(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        whole = pa.Table.from_batches(source.scan(reader, source.schema.names))
        for target in (len(sample.data) // 40 + 1, len(sample.data) // 3 + 1, len(sample.data), 1 << 40):
            splits = source.splits(target)
            assert [begin for begin, _ in splits] == [0, *(end for _, end in splits[:-1])]
            assert splits[-1][1] == len(sample.data)
            batches = [batch for split in splits for batch in source.scan(reader, source.schema.names, split)]
            assert pa.Table.from_batches(batches).equals(whole)
        assert len(source.splits(1 << 40)) == 1

    def test_each_scanned_row_comes_back_from_its_own_pointer(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        for pointer, row in zip(pointers_of(source.scan(reader, [])), sample.rows, strict=True):
            table = source.fetch(reader, [pointer], source.schema.names)
            assert table.to_pylist() == [row]
            assert table.schema == source.schema

    def test_pointers_may_come_in_any_order_and_repeated(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        pointers = pointers_of(source.scan(reader, []))
        asked = [len(pointers) - 1, 0, *range(0, len(pointers), 7), 0, len(pointers) // 2, len(pointers) - 1]
        table = source.fetch(reader, [pointers[i] for i in asked], source.schema.names)
        assert table.to_pylist() == [sample.rows[i] for i in asked]
        numbers = np.array(pointers, np.int64)[asked]
        assert source.fetch(reader, numbers, source.schema.names).equals(table)

    def test_rows_that_are_read_together_have_numbers_that_rise_with_them(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        offsets = np.array([offset for offset, _ in pointers_of(source.scan(reader, []))])
        units = source.units(offsets)
        assert len(units) == len(offsets)
        assert (np.diff(units) >= 0).all()
        assert (np.diff(units)[np.diff(offsets) == 0] == 0).all()

    def test_columns_come_in_the_order_asked(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        names = source.schema.names[::-1]
        table = source.fetch(reader, pointers_of(source.scan(reader, []))[:1], names)
        assert table.schema.names == names
        batch = next(source.scan(reader, names))
        assert batch.schema.names == [*names, *POINTER]

    def test_no_pointers_give_no_rows_in_the_right_types(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
        table = source.fetch(reader, [], source.schema.names)
        assert table.num_rows == 0
        assert table.schema == source.schema

    def test_one_pointer_reads_a_bounded_number_of_bytes(self, sample: Sample) -> None:
        reader = sample.reader()
        source = sample.open(reader)
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
                read_all(sample, reader)
            assert caught.value.path == "lake/cut"

    def test_the_digest_is_of_the_content_alone(self, sample: Sample) -> None:
        digest = sample.open(sample.reader()).digest
        assert digest == sample.open(BytesReader(sample.data, "elsewhere")).digest
        int(digest, 16)
