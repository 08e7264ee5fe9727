"""The state of the indexes: `/readyz`, the list of indexes, and the description of one with its keys, columns,
snapshot, coverage, and the rows of its partitions and buckets.

All comes from memory, so storage that hangs delays no probe; only a description lists the kept snapshots, at intervals,
and reads each of them once."""

import datetime as dt
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gnomon.base import kernel
from gnomon.service.api.shapes import (
    CoverageCounts,
    IndexDescription,
    IndexReadiness,
    KeptSnapshot,
    KeyColumn,
    Limits,
    ListedIndex,
    Partition,
    Readiness,
    RowColumn,
    ServedSnapshot,
)
from gnomon.service.errors import NotReady
from gnomon.service.indexes import Place, ServedIndex, visible, visible_keys
from gnomon.service.settings import Settings
from gnomon.shadow.errors import ShadowError
from gnomon.shadow.metadata import Record, Snapshot, View, newest_records
from gnomon.shadow.storage import FileInfo, storage_at
from gnomon.shadow.tables import shown_part

SATURATED_SECONDS = 5.0  # after an index refused all requests for this time, the process is not ready
MOST_PARTITIONS = 400  # in an answer: the last ones by name, which are the newest if names are dates
MOST_SNAPSHOTS = 200  # the newest
_NAMES_OF_ENTRIES = re.compile(r" \('\w*'(?:, '\w*')?\)(?=[>,])")  # of a map, where a file has other names


def readiness(indexes: Iterable[ServedIndex]) -> Readiness:
    """The state of each index, by name. NotReady, with the same states, while no index is open or one has refused all
    requests for some seconds. An open index answers from its caches, so a source or a store that fails later does not
    make the process unready."""
    states = {served.place.name: _state(served) for served in indexes}
    if not any(state.open for state in states.values()):
        raise NotReady("no index could be opened yet; they are tried again and again", indexes=states)
    for name, state in states.items():
        if state.saturated_seconds >= SATURATED_SECONDS:
            raise NotReady(f"index {name} has refused all requests for {SATURATED_SECONDS:g} s or more", indexes=states)
    return Readiness(True, states, kernel.COMPILED)


def _state(served: ServedIndex) -> IndexReadiness:
    view = served.index.view if served.is_open else None
    table = view.snapshot.table if view is not None else None
    return IndexReadiness(
        open=view is not None,
        snapshot=view.snapshot.number if view is not None else None,
        table_version=table.version if table is not None else None,
        rows=view.snapshot.rows if view is not None else None,
        source_files=view.source_files if view is not None else None,
        refused=served.refused,
        unreachable=served.unreachable,
        coverage=coverage_of(served),
        coverage_error=served.coverage_error,
        saturated_seconds=round(max(served.threads.saturated_seconds, served.batch_threads.saturated_seconds), 3),
    )


def coverage_of(served: ServedIndex) -> CoverageCounts | None:
    """The coverage of an index at the last listing of its source; None before the first one."""
    known = served.coverage
    if known is None:
        return None
    age_seconds = round(known.age_seconds, 3)
    return CoverageCounts(
        known.snapshot, known.new, known.changed, known.vanished, known.lake_table, known.newer, age_seconds
    )


def listed(served: ServedIndex, default: bool, root_path: str) -> ListedIndex:
    """An index in the list of indexes. Its URL begins with `root_path`, the path under which the service is served."""
    view, name = served.index.view if served.is_open else None, served.place.name
    url = f"{root_path}/indexes/{name}"
    if view is None:
        return ListedIndex(name, default, url, False, None, None, None)
    keys = visible_keys(served.place, view.spec.keys)
    return ListedIndex(name, default, url, True, view.snapshot.number, view.snapshot.rows, keys)


@dataclass
class _Known:
    """Cached parts of the description of an index: `of_view` is valid for its view, `records` for some seconds."""

    of_view: tuple[View | None, dict[str, Any]] = (None, {})
    records: dict[FileInfo, Record] = field(default_factory=dict)
    listed_at: float = float("-inf")
    listing: threading.Lock = field(default_factory=threading.Lock)


class Descriptions:
    """The answers to `/indexes/{name}`. Safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, served: ServedIndex, settings: Settings, default: bool) -> IndexDescription:
        """The description of one index. Lists its snapshots if the last listing is old."""
        known = self._known.setdefault(served.place.name, _Known())
        view = served.index.view
        known_view, of_view = known.of_view
        if known_view is not view:
            of_view = _of_view(view, served.place)
            known.of_view = view, of_view
        return IndexDescription(
            name=served.place.name,
            default=default,
            open=True,
            **of_view,
            snapshot=_snapshot(view.snapshot),
            refused=served.refused,
            coverage=coverage_of(served),
            coverage_error=served.coverage_error,
            snapshots=_snapshots(served, known, view.snapshot, settings.refresh_seconds),
            limits=Limits(
                settings.max_key_bytes, settings.max_batch_keys, settings.max_rows, settings.max_answer_bytes
            ),
        )


def _snapshots(served: ServedIndex, known: _Known, newest: Snapshot, every_seconds: float) -> list[KeptSnapshot]:
    """The kept snapshots, oldest first. If they cannot be listed: the snapshots of the last listing, and the served
    one."""
    due = time.monotonic() - known.listed_at >= every_seconds
    if due and known.listing.acquire(blocking=False):  # one thread lists, and no other one waits for a slow store
        try:
            known.records = newest_records(storage_at(served.place.path), MOST_SNAPSHOTS, known.records)
        except (ShadowError, OSError):
            pass  # the index is still served; readiness reports a store that does not answer
        finally:
            known.listed_at = time.monotonic()
            known.listing.release()
    records = {record.snapshot: record for record in known.records.values()}
    told = {number: _record(record) for number, record in records.items()}
    if newest.number not in told:
        told[newest.number] = _record(Record(newest.number, newest.committed_at, newest.operation, newest.rows))
    return [told[number] for number in sorted(told)][-MOST_SNAPSHOTS:]


def _record(record: Record) -> KeptSnapshot:
    """A kept snapshot; only its number if it cannot be read."""
    if record.error:
        return KeptSnapshot(record.snapshot)
    return KeptSnapshot(record.snapshot, record.committed_at, record.operation, record.rows, record.table_version)


def _snapshot(snapshot: Snapshot) -> ServedSnapshot:
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(snapshot.committed_at)
    version = snapshot.table.version if snapshot.table is not None else None
    age_seconds = round(max(age.total_seconds(), 0.0), 3)
    return ServedSnapshot(
        snapshot.number, snapshot.committed_at, snapshot.operation, snapshot.rows, version, age_seconds
    )


def _of_view(view: View, place: Place) -> dict[str, Any]:
    """The members that do not change while the snapshot is served."""
    spec = view.spec
    files = [file for segment in view.segments for file in segment.by_bucket.values()]
    bucket_rows, bucket_bytes = [0] * spec.buckets, [0] * spec.buckets
    for file in files:
        bucket_rows[file.bucket] += file.entries
        bucket_bytes[file.bucket] += file.size
    partitions = _partitions(view, place)
    types = {**view.snapshot.columns, **{name: spec.partition_type(name) for name in spec.partitions}}
    return {
        "format": spec.format,
        "keys": [
            KeyColumn(key.name, key.source_type or key.type, key.partition)
            for key in spec.keys
            if visible_keys(place, [key])
        ],
        "columns": [RowColumn(name, _NAMES_OF_ENTRIES.sub("", types[name])) for name in visible(place, view.columns)],
        "included": visible(place, [column.name for column in spec.include]),
        "partition_columns": visible(place, spec.partitions),
        "flat": spec.flat,
        "buckets": spec.buckets,
        "source_files": view.source_files,
        "segments": len(view.segments),
        "index_files": len(files),
        "index_bytes": sum(bucket_bytes),
        "filter_bytes": view.filter_bytes,
        "partitions": partitions[-MOST_PARTITIONS:],
        "partitions_total": len(partitions),
        "bucket_rows": bucket_rows,
        "bucket_bytes": bucket_bytes,
    }


def _partitions(view: View, place: Place) -> list[Partition]:
    """The partitions, sorted by name. Partitions that differ only in hidden columns are summed. In a flat index
    `index_bytes` is None, since an index file has entries of several partitions."""
    hidden = set(view.spec.partitions) - set(visible(place, view.spec.partitions))
    by_name: dict[str, Partition] = {}

    def entry(partition: str) -> Partition:
        name = shown_part(partition, hidden)
        return by_name.setdefault(name, Partition(name, 0, 0, None if view.spec.flat else 0))

    for partition, rows in view.snapshot.partitions.items():
        entry(partition).rows += rows
    for segment in view.segments:
        for source in view.spec.entries.source_files(segment):
            entry(source.partition).source_files += 1
        for file in () if view.spec.flat else segment.by_bucket.values():
            shown = entry(file.partition)
            shown.index_bytes = (shown.index_bytes or 0) + file.size
    return [by_name[name] for name in sorted(by_name)]
