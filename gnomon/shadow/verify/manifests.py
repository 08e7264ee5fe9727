"""Checks that the snapshot and the manifests of its segments are consistent, and the report on the log of appends: its
counts, and whether its records are complete and undamaged."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.btree.keys import type_of_arrow
from gnomon.shadow.commit import read_log
from gnomon.shadow.errors import ShadowError
from gnomon.shadow.lookup import INDEX_FILE_SUFFIX
from gnomon.shadow.metadata import (
    APPENDED,
    APPENDS_FOLDER,
    BATCHES_FOLDER,
    DONE,
    ORIGIN_PATH,
    Append,
    IndexFileEntry,
    IndexSpec,
    Segment,
    Snapshot,
    View,
    batch_path,
    find_batch,
    manifest_path,
    mark_path,
    masks_of,
    read_append,
    read_batch,
    snapshot_path,
    table_of,
)
from gnomon.shadow.storage import Storage
from gnomon.shadow.verify.report import Fault, Report, fault_of

Columns = Mapping[str, Mapping[str, str]]  # column: its types in source files, each with one file

_NAMED_TYPE = re.compile(r"decimal\d+\((\d+), (\d+)\)|timestamp\[(s|ms|us|ns), tz=(.+)\]|fixed_size_binary\[(\d+)\]")


def check_snapshot(storage: Storage, view: View, report: Report) -> None:
    """Check a snapshot's time, its dead source files and, where all manifests could be read, its rows."""
    snapshot, where = view.snapshot, f"{storage.root}/{snapshot_path(view.snapshot.number)}"
    if not _is_time(snapshot.committed_at):
        report.add(Fault(where, 0, f"committed at {snapshot.committed_at!r}, expected a time", view.spec.remedy))
    covers = {segment.id: len(segment.source_files) for segment in view.segments}
    for ref in snapshot.segments:
        ascends = all(a < b for a, b in pairwise(ref.dead))
        if not ascends or any(not 0 <= i < covers.get(ref.id, i + 1) for i in ref.dead):
            what = f"the dead source files {list(ref.dead)} of segment {ref.id} are not of the"
            report.add(
                Fault(
                    where,
                    0,
                    f"{what} {covers.get(ref.id, '?')} that it lists, ascending and each once",
                    view.spec.remedy,
                )
            )
    if len(view.segments) == len(snapshot.segments):
        _check_rows(view, where, report)


def _is_time(text: str) -> bool:
    try:
        return dt.datetime.fromisoformat(text).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _check_rows(view: View, where: str, report: Report) -> None:
    rows: Counter[str] = Counter()
    masks = masks_of(view.segments)
    for segment in view.segments:
        for path, file in segment.live.items():
            rows[file.partition] += file.rows
            if path in masks:
                rows[file.partition] -= masks[path].rows
    for partition in sorted({*rows, *view.snapshot.partitions}):
        said, found = view.snapshot.partitions.get(partition), rows.get(partition)
        if said != found:
            report.add(
                Fault(
                    where,
                    0,
                    f"says {said} rows of {partition or 'the source'}, its segments cover {found}",
                    view.spec.remedy,
                )
            )


def check_manifests(storage: Storage, view: View, report: Report) -> None:
    """Check that each source file lies in the partition of its path and is live once, and that each index file is the
    only one of its bucket, has the right name, and lies in the folder of a covered source file."""
    covering: dict[str, Segment] = {}
    for segment in view.segments:
        faults = [*_source_files(view, segment), *_index_files(view.spec, segment)]
        for path in segment.live:
            other = covering.setdefault(path, segment)
            if other is not segment:
                faults.append(f"covers {path}, which segment {other.id} covers, too")
        for what in faults:
            report.add(Fault(f"{storage.root}/{manifest_path(segment.id)}", 0, what, view.spec.remedy))


def _source_files(view: View, segment: Segment) -> list[str]:
    faults = []
    for path, count in Counter(file.path for file in segment.source_files).items():
        if count > 1:
            faults.append(f"lists {path} {count} times")
    elsewhere: dict[tuple[str, str], list[str]] = {}
    source = table_of(view.spec, view.snapshot.folders)
    if source.versions is not None:
        return faults  # the table's metadata has the partition of a file, and not its path
    for file in segment.live.values():  # a catalog table has only current folders
        partition = source.partition_of(file.path, bool(view.spec.partitions))
        if file.partition != partition:
            elsewhere.setdefault((partition, file.partition), []).append(file.path)
    for (partition, said), paths in elsewhere.items():
        of = f"{len(paths)} source files of {partition or 'no partition'}"
        faults.append(f"lists {of} as of {said or 'none'}, the first is {paths[0]}")
    return faults


def _index_files(spec: IndexSpec, segment: Segment) -> list[str]:
    faults = []
    for (partition, bucket), count in Counter((file.partition, file.bucket) for file in segment.index_files).items():
        if count > 1:
            faults.append(f"has {count} index files of bucket {bucket} of {partition or 'the index'}")
    folders = {spec.folder_of(file.partition) for file in segment.source_files}
    for file in segment.index_files:
        if file.partition not in folders:
            faults.append(f"names {file.path} in {file.partition or 'the index'}, where it covers no source file")
        buckets = spec.buckets_in(file.partition)
        if not 0 <= file.bucket < buckets or not _is_named_so(file):
            place = f"bucket {file.bucket} of {buckets} in {file.partition or 'the index'}"
            faults.append(f"names {file.path} for {place}")
    return faults


def _is_named_so(file: IndexFileEntry) -> bool:
    """Whether the path of the file matches its place: engines rely on the path."""
    folder, _, name = file.path.rpartition("/")
    return folder == file.partition and name.endswith(f"_{file.bucket:05d}{INDEX_FILE_SUFFIX}")


def check_columns(storage: Storage, snapshot: Snapshot, found: Columns, is_all: bool, report: Report) -> None:
    """Compare the columns of the snapshot with those `found` in source files. The snapshot must have each of them. Its
    type is from the file indexed last (the widest of numbers), which may be gone, so no file need have it; but an
    indexed column has a type that maps to its key type. `is_all`: all files ever indexed were opened; then some file
    has each column, in its type."""
    where = f"{storage.root}/{snapshot_path(snapshot.number)}"
    indexed = {column.name: column.type for column in (*snapshot.spec.stored_keys, *snapshot.spec.include)}
    for name, types in found.items():
        said = snapshot.columns.get(name)
        if said is None:
            kind, path = next(iter(types.items()))
            report.add(
                Fault(where, 0, f"does not know the column {name} ({kind}) that {path} has", snapshot.spec.remedy)
            )
        elif said not in types and ((is_all and _are_plain(types)) or _is_other(said, indexed.get(name))):
            report.add(
                Fault(where, 0, f"says that the column {name} is {said}, {_listed(types)}", snapshot.spec.remedy)
            )
    for name in sorted(snapshot.columns.keys() - found.keys()) if is_all else ():
        report.add(Fault(where, 0, f"knows a column {name} that no source file has", snapshot.spec.remedy))


def _listed(types: Mapping[str, str]) -> str:
    return ", ".join(f"{path} has it as {kind}" for kind, path in types.items())


def _are_plain(types: Mapping[str, str]) -> bool:
    """Whether the types have the same names in every version of Arrow: nested ones and extensions do not."""
    return not any("<" in name for name in types)


def _is_other(said: str, key_type: str | None) -> bool:
    """Whether no column of the key type can have this type in files."""
    found = _named(said)
    return key_type is not None and found is not None and type_of_arrow(found) != key_type


def _named(text: str) -> pa.DataType | None:
    """The Arrow type of a name; None unless it is simple."""
    match = _NAMED_TYPE.fullmatch(text)
    try:
        if match is None:
            return pa.type_for_alias(text)
        precision, scale, unit, zone, width = match.groups()
        if precision:
            return pa.decimal128(int(precision), int(scale))
        return pa.timestamp(unit, zone) if unit else pa.binary(int(width))
    except (ValueError, pa.ArrowException):
        return None


@dataclass(frozen=True)
class OpenAppend:
    """An append that is committed and not finished. Its age is unknown, since records have no time."""

    number: int
    batch: str
    rows: int
    files: int


@dataclass(frozen=True)
class AppendsReport:
    """The appends of an index, the `void` ones among them, and those that are not finished."""

    appends: int
    void: int
    open: tuple[OpenAppend, ...]

    def to_json(self) -> dict[str, Any]:
        return {"appends": self.appends, "void": self.void, "open": [vars(append) for append in self.open]}


def appends_report(storage: Storage) -> AppendsReport:
    """The report on the log, without writing. DamagedMetadata or NewerFormat where it cannot be read."""
    found = read_log(storage)
    left = tuple(OpenAppend(append.number, append.batch, append.rows, len(append.files)) for append in found.open)
    return AppendsReport(found.last, len(found.void), left)


def check_appends(storage: Storage, report: Report) -> None:
    """Check that every record can be read and has the right name, that no append is missing, and that an append marked
    as done has the record of its batch and the mark of its files."""
    for info in list(storage.list(BATCHES_FOLDER)):
        _check_batch(storage, info.path, report)
    try:
        found = read_log(storage)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, storage.root))
        return
    report.appends = found.last
    there = {info.path for info in storage.list(APPENDS_FOLDER, witness=ORIGIN_PATH)}
    for number in range(1, found.last + 1):
        try:
            append = read_append(storage, number)
        except (ShadowError, OSError) as error:
            report.add(fault_of(error, storage.root))
            continue
        if mark_path(append, DONE) in there:
            _check_done(storage, append, mark_path(append, APPENDED) in there, report)


def _check_batch(storage: Storage, path: str, report: Report) -> None:
    where = f"{storage.root}/{path}"
    try:
        batch = read_batch(storage, path)
    except (ShadowError, OSError) as error:
        report.add(fault_of(error, where))
        return
    if batch is not None and path != batch_path(batch.append.batch):
        report.add(
            Fault(
                where, 0, f"the record of batch {batch.append.batch!r}, which belongs elsewhere", Action.RESTORE_RECORD
            )
        )


def _check_done(storage: Storage, append: Append, is_appended: bool, report: Report) -> None:
    where = f"{storage.root}/{mark_path(append, DONE)}"
    try:
        batch = find_batch(storage, append.batch)
    except (ShadowError, OSError):  # reported as its own fault
        return
    if batch is None:
        report.add(
            Fault(
                where,
                None,
                f"says that batch {append.batch!r} was appended, and its record is missing",
                Action.RESTORE_RECORD,
            )
        )
    elif not is_appended and batch.append.append_id == append.append_id:
        report.add(
            Fault(
                where,
                None,
                "says that the append is finished, and not that its files have their names",
                Action.RESTORE_RECORD,
            )
        )
