"""Comparison of source files with their entries in the index files."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.key_types import key_type
from gnomon.btree.keys import key_array
from gnomon.shadow.fetch import Fetcher
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry
from gnomon.shadow.storage import join
from gnomon.shadow.verify.index_files import HASHES, FolderProof, Hashes, Tally, entry_hashes
from gnomon.shadow.verify.report import FAILURES, Fault, Report, fault_of
from gnomon.sources.pointers import OFFSET, SUB_OFFSET

POINTER_NUMBERS = 3  # pointer columns, the last of a scan of a source
ROW = np.dtype([("offset", "<i8"), ("sub_offset", "<i4"), ("hash", "<u8")])
PLACE = ["offset", "sub_offset"]

Rows = npt.NDArray[np.void]


class RowSum(NamedTuple):
    """The rows of a source file, and the sum of their hashes modulo 2^64."""

    rows: int
    hashes: int


class ReadBack:
    """Compares source files with the tallies of a `FolderProof`, and reports differences."""

    def __init__(self, root: str, spec: IndexSpec, fetcher: Fetcher, report: Report) -> None:
        self._root = root
        self._spec = spec
        self._fetcher = fetcher
        self._report = report
        self._columns = (*spec.stored_keys, *spec.include)
        self.sums: dict[str, RowSum] = {}  # by path, of files that another process has scanned
        self.opened = 0
        self.columns: dict[str, dict[str, str]] = {}  # columns of the opened files: each type, with one file

    def run(self, proof: FolderProof, every: bool, stale: set[str]) -> None:
        """Check the number of entries of each live source file. Open the files of samples, or `every` file, and follow
        the pointers of the samples. With `every`, also compare all entries with a scan. `stale` files are not read."""
        for number, tally in enumerate(proof.tallies):
            if not tally.is_live:
                continue
            self._report.source_files += 1
            if proof.is_whole and tally.entries != tally.file.rows:
                found = f"its index files hold {tally.entries} entries of it"
                what = f"has {tally.file.rows} rows, {found}"
                self._report.add(Fault(self._where(tally.file), None, what, Action.BUILD_FULL))
            if tally.file.path in stale or not (every or tally.sample) or not self._opens(tally.file):
                continue
            try:
                if every and proof.is_whole:
                    self._compare(proof, number, tally)
            except FAILURES as error:
                self._report.add(fault_of(error, self._where(tally.file)))
            self._follow(tally)

    def _opens(self, file: SourceFileEntry) -> bool:
        """Whether a source file can be opened and is the one that was indexed. Compares its number of rows with its
        manifest, and records its columns."""
        try:
            found = self._fetcher.files.metadata(file)
            rows, schema = found.rows, found.schema
        except FAILURES as error:
            self._report.add(fault_of(error, self._where(file)))
            return False
        self.opened += 1
        if rows is not None and rows != file.rows:
            what = f"has {rows} rows, its segment lists it with {file.rows}"
            self._report.add(Fault(self._where(file), None, what, Action.BUILD_FULL))
        nested = {column.name for column in self._columns if column.path}
        for field in (field for field in schema if field.name not in nested):
            self.columns.setdefault(field.name, {}).setdefault(str(field.type), file.path)
        return True

    def sum_of(self, file: SourceFileEntry) -> RowSum:
        """The rows of a source file, and the sum of their hashes."""
        rows = total = 0
        for _, hashes in self._scan(file):
            total = (total + int(hashes.sum())) % HASHES
            rows += len(hashes)
        return RowSum(rows, total)

    def _compare(self, proof: FolderProof, number: int, tally: Tally) -> None:
        found = self.sums.get(tally.file.path) or self.sum_of(tally.file)
        self._report.rows_compared += found.rows
        if found.hashes == tally.hashes:
            return
        indexed = _rows((batch.select([OFFSET, SUB_OFFSET]).columns, hashes) for batch, hashes in proof.entries(number))
        held = _rows(self._scan(tally.file))
        places, counts = np.unique(indexed[PLACE], return_counts=True)
        beyond = np.setdiff1d(places, held[PLACE])
        for rows, what in (
            (np.setdiff1d(np.setdiff1d(indexed, held)[PLACE], beyond), "rows do not hold what they were indexed under"),
            (np.setdiff1d(held[PLACE], places), "rows have no entry"),
            (beyond, "entries point to no row"),
            (places[counts > 1], "rows have several entries"),
        ):
            if len(rows):
                self._report.add(
                    Fault(self._where(tally.file), int(rows[0]["offset"]), f"{len(rows)} {what}", Action.BUILD_FULL)
                )

    def _scan(self, file: SourceFileEntry) -> Iterator[tuple[list[pa.Array], Hashes]]:
        """Yield the pointers (offset, sub-offset) of all rows of a source file, and their hashes."""
        for batch in self._fetcher.scan(file, [column.name for column in self._columns]):
            there = batch.schema.names[:-POINTER_NUMBERS]
            arrays = [
                key_array(batch.column(there.index(column.name)), column.type, column.name)
                if column.name in there
                else pa.nulls(batch.num_rows, key_type(column.type).arrow)
                for column in self._columns
            ]
            offsets, sub_offsets, _ = batch.columns[-POINTER_NUMBERS:]
            types = [column.type for column in self._columns]
            yield [offsets, sub_offsets], entry_hashes(arrays, types, offsets, sub_offsets)

    def _follow(self, tally: Tally) -> None:
        """Fetch the sampled rows one by one. Each wrong pointer is a fault."""
        for key, pointer in tally.sample:
            try:
                self._fetcher.check(tally.file, pointer, key)
                self._report.rows_compared += 1
            except FAILURES as error:
                found = fault_of(error, self._where(tally.file))
                self._report.add(replace(found, offset=pointer.data_offset) if found.offset is None else found)

    def _where(self, file: SourceFileEntry) -> str:
        return join(self._root, file.path)


def _rows(pieces: Iterable[tuple[list[pa.Array], Hashes]]) -> Rows:
    """The rows as places and hashes."""
    made = [np.empty(0, ROW)]
    for (offsets, sub_offsets), hashes in pieces:
        rows = np.empty(len(hashes), ROW)
        rows["offset"], rows["sub_offset"], rows["hash"] = offsets.to_numpy(), sub_offsets.to_numpy(), hashes
        made.append(rows)
    return np.concatenate(made)
