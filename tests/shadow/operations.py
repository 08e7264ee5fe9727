"""The operations that change an index, on small lakes with known answers: the rows of the crash matrix.

Another operation is a line in OPERATIONS.
"""

import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader
from gnomon.btree.blocks import LookupStats
from gnomon.shadow.commit.publishing import new_segment_id
from gnomon.shadow.commit.relocate import adopt, record
from gnomon.shadow.fetch.page_maps import prove_page_maps, without_maps
from gnomon.shadow.index_for_jobs import OpenIndex
from gnomon.shadow.lookup.index_files import open_filter
from gnomon.shadow.lookup.plan import parse_key
from gnomon.shadow.maintenance.compaction import compact, rebucket
from gnomon.shadow.maintenance.vacuuming import vacuum
from gnomon.shadow.metadata.snapshot_view import open_view
from gnomon.shadow.metadata.snapshots import read_segments, read_snapshot, read_spec, snapshot_numbers
from gnomon.shadow.metadata.source_files import SourceRoot, source_root
from gnomon.shadow.storage import Storage, storage_at
from tests.shadow.make_index import index_source, write_maps, write_source

Lake = dict[str, tuple[int, ...]]  # the source's files: the keys of their rows
Answers = dict[int, list[tuple[str, int]]]  # a key's rows: file and number in it

FIRST: Lake = {"p=a/1.parquet": (1, 2, 2, 3), "p=a/2.parquet": (3, 4, 5), "p=b/1.parquet": (1, 6, 7)}
SECOND: Lake = {
    "p=a/1.parquet": (1, 2, 2, 3),  # unchanged
    "p=a/2.parquet": (8, 5, 3, 3),  # changed
    "p=b/2.parquet": (7, 9),  # new; p=b/1.parquet vanished
    "p=c/1.parquet": (1, 10),  # new, in a new partition
}
KEYS = range(12)


def build(source: SourceRoot, index: Storage) -> object:
    return index_source(source, index, ["k"], buckets=2)


@dataclass(frozen=True)
class Operation:
    """`prepared` indexes the states `history` of the source, each in one commit. `lake` is the source when `run`
    changes the index, in a commit if it `commits`. With `copy`, the indexed source lies elsewhere, and stays there."""

    history: tuple[Lake, ...]
    lake: Lake
    run: Callable[[SourceRoot, Storage], object]
    commits: bool = True
    prepared: Callable[[SourceRoot, Storage], object] = build
    copy: bool = False


def build_flat(source: SourceRoot, index: Storage) -> object:
    return index_source(source, index, ["k"], buckets=2, flat=True)


def build_mapped(source: SourceRoot, index: Storage) -> object:
    return index_source(source, index, ["k"], buckets=2, page_maps=True)


def build_flat_mapped(source: SourceRoot, index: Storage) -> object:
    return index_source(source, index, ["k"], buckets=2, flat=True, page_maps=True)


def map_pages(source: SourceRoot, index: Storage) -> object:
    """Record the missing page maps of all indexed files."""
    view = open_view(index)
    files = without_maps(index, "parquet", view.covered.values())
    return record(index, write_maps(source, index, new_segment_id(), files) if files else {})


def remove_all(_source: SourceRoot, index: Storage) -> object:
    return vacuum(index, grace_seconds=0, unnamed_seconds=0)


OPERATIONS = {
    "first build": Operation((), FIRST, build),
    "build of changes": Operation((FIRST,), SECOND, build, prepared=build_mapped),
    "build that finds files gone": Operation((FIRST, SECOND), {"p=a/1.parquet": SECOND["p=a/1.parquet"]}, build),
    "page maps of what is indexed": Operation((FIRST, SECOND), SECOND, map_pages),
    "flat build that merges": Operation((FIRST,), SECOND, build_flat, prepared=build_flat_mapped),
    "full build": Operation((FIRST,), SECOND, lambda source, index: index_source(source, index, ["k"], full=True)),
    "compact": Operation((FIRST, SECOND), SECOND, lambda _source, index: compact(index), prepared=build_mapped),
    "re-shard": Operation((FIRST, SECOND), SECOND, lambda _source, index: rebucket(index, 3), prepared=build_mapped),
    "adopt": Operation(
        (FIRST, SECOND), SECOND, lambda source, index: adopt(index, source), prepared=build_mapped, copy=True
    ),
    "vacuum": Operation((FIRST, SECOND), SECOND, remove_all, prepared=build_mapped, commits=False),
}


def put_lake(root: Path | Storage, lake: Lake, before: Lake | None = None) -> None:
    """Make the source hold these files. Unchanged files are not touched."""
    before = before or {}
    for path in before.keys() - lake.keys():
        (storage_at(str(root)) if isinstance(root, Path) else root).delete(path)
    changed = {path: keys for path, keys in lake.items() if before.get(path) != keys}
    write_source(root, {path: table(path, keys) for path, keys in changed.items()})


def copy_lake(source: Path, target: Path) -> None:
    """Copy the files to another place, with other times."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in target.rglob("*.parquet"):
        os.utime(path, (1, 1))


def table(path: str, keys: tuple[int, ...]) -> pa.Table:
    return pa.table(
        {"k": pa.array(keys, pa.int32()), "row": pa.array([f"{path} {i}" for i in range(len(keys))], pa.string())}
    )


def prepare(name: str, source: Path, index: Storage) -> None:
    """Bring source and index to the start of the operation."""
    operation = OPERATIONS[name]
    before: Lake = {}
    indexed = source.with_name("original") if operation.copy else source
    for lake in operation.history:
        put_lake(indexed, lake, before)
        operation.prepared(source_root(str(indexed)), index)
        before = lake
    put_lake(indexed, operation.lake, before)
    if operation.copy:
        copy_lake(indexed, source)


def answers(lake: Lake) -> Answers:
    """The oracle: what look-ups of KEYS must find."""
    found: Answers = {key: [] for key in KEYS}
    for path, keys in sorted(lake.items()):
        for row, key in enumerate(keys):
            found[key].append((path, row))
    return found


def look_up(index: Storage, number: int | None = None) -> Answers:
    """The answers of look-ups of KEYS in the newest snapshot, or in another."""
    return look_up_in(OpenIndex(index, open_view(index, number), pinned=True))


def look_up_in(opened: OpenIndex) -> Answers:
    hits = opened.find([parse_key(key, opened.spec) for key in KEYS], LookupStats())
    pointers = ((hit.pointer for hit in found) for found in hits)
    return {
        key: sorted((pointer.data_filename, pointer.data_offset) for pointer in found)
        for key, found in zip(KEYS, pointers, strict=True)
    }


def check_state(name: str, index: Storage) -> bool:
    """Whether the newest snapshot is the result of the operation; if not, check that it is the complete one before."""
    operation = OPERATIONS[name]
    if not operation.commits:
        assert look_up(index) == answers(operation.lake)
        return True
    if operation.copy:  # the answers stay the same, but the rows are read from another place
        check_rows(index, operation.lake)
    if len(snapshot_numbers(index)) <= len(operation.history):
        if operation.history:
            assert look_up(index) == answers(operation.history[-1])
        else:
            assert snapshot_numbers(index) == []
        return False
    assert look_up(index) == answers(operation.lake)
    return True


def check_clean(index: Storage) -> None:
    """Check that every file that the snapshots name is undamaged, and that entries and rows are equal in number."""
    for number in snapshot_numbers(index):
        folder_of, snapshot = read_spec(index).folder_of, read_snapshot(index, number)
        live: Counter[str] = Counter()
        for segment in read_segments(index, snapshot):
            rows: Counter[str] = Counter()
            for file in segment.source_files:
                rows[folder_of(file.partition)] += file.rows
            for path, file in segment.live.items():
                assert path == file.path
                live[file.partition] += file.rows
            entries: Counter[str] = Counter()
            needed = segment.by_bucket.values()
            for item in segment.index_files:
                entries[item.partition] += item.entries
                if item not in needed:  # its source files are all dead, so vacuum may have removed it
                    continue
                data = index.read(item.path)
                assert (len(data), zlib.crc32(data)) == (item.size, item.crc32)
                assert BTreeReader(MemoryFile(data, item.path)).check() == item.entries
                assert item.filter is not None
                open_filter(index, item.filter)
            assert +rows == +entries
            for file in segment.live.values():
                assert (file.page_maps is not None) == snapshot.spec.page_maps
                if file.page_maps is not None:
                    prove_page_maps(index, "parquet", file.page_maps, file.digest)
        assert dict(live) == snapshot.partitions


def check_rows(index: Storage, lake: Lake) -> None:
    """Check that the rows, read from the source, have the keys."""
    opened = OpenIndex(index, open_view(index), pinned=True)
    expected = [sorted(f"{path} {row}" for path, row in rows) for rows in answers(lake).values()]
    assert [sorted(row["row"] for row in rows) for rows in opened.fetch_many(list(KEYS), ["row"])] == expected
    assert opened.coverage().is_empty
