"""The ranges of keys of an index in ranges: cut from a sample of the source, and further ones behind the last.

Keys that grow, as times and numbers do, all lie behind the last cut. So a build adds ranges behind the greatest key of
the index, where the last range has grown: no entry that is there changes its bucket."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from gnomon.btree.blocks import LookupStats
from gnomon.btree.key_types import Stored, key_type
from gnomon.btree.keys import Key, stored_values
from gnomon.jobs.files import Described, scan_file
from gnomon.shadow.lookup import open_index_file, range_of_key
from gnomon.shadow.metadata import (
    ENTRIES_PER_BUCKET,
    MOST_BUCKETS,
    IndexSpec,
    RangeBuckets,
    SegmentFile,
    SourceRoot,
    View,
    bytes_order,
    cuts_of,
    with_cuts,
)
from gnomon.shadow.storage import Storage

SCANNED_ROWS, SAMPLED_KEYS = 20_000_000, 200_000  # of a source, from which the ranges of keys are cut
SOME_SPLITS, WORTH = (
    16,
    0.1,
)  # ranges of files in which the share of greater keys is found; a share that is worth ranges
LONGEST_FIRST = 1000  # characters or bytes of a value in the first further cut, which is not shortened


def in_ranges(spec: IndexSpec, root: SourceRoot, described: Sequence[Described]) -> IndexSpec:
    """The spec with ranges of keys for these files, about equal ones, as many as it has buckets."""
    return with_cuts(spec, cuts_of(_sample(spec, root, described), spec.key_types, spec.buckets))


def with_further_ranges(
    storage: Storage, view: View, spec: IndexSpec, root: SourceRoot, described: Sequence[Described]
) -> IndexSpec:
    """The spec of an index in ranges, with ranges for the keys of these new files that are greater than all keys of the
    index, where many are, and the last range would have more entries than its share."""
    assert spec.cuts is not None
    share, behind = max(ENTRIES_PER_BUCKET, view.snapshot.rows // spec.buckets), spec.buckets - 1
    files = ((one, file) for one in view.segments for file in one.index_files)
    last = [SegmentFile(one, file) for one, file in files if file.bucket == behind]
    rows = sum(one.likely_rows for one in described)
    if not last or not rows or sum(place.file.entries for place in last) + rows <= share:
        return spec
    greatest = max((_greatest(storage, view, place) for place in last), key=bytes_order)
    first = range_of_key(spec.key_types, greatest).high  # of the keys that are greater
    if first is None or any(part != part or _is_long(part) for part in first):
        return spec
    greater = RangeBuckets(spec.key_types, (first,))
    some = [greater.of_columns(columns) for columns in _batches(spec, root, described, SOME_SPLITS, True)]
    if not some or np.concatenate(some).mean() < WORTH:
        return spec
    keys = _sample(spec, root, described)
    kept = pa.array(greater.of_columns(keys) == 1)
    keys = [column.filter(kept) for column in keys]
    wanted = max(1, rows * len(keys[0]) // max(len(kept), 1) // share)
    further = cuts_of(keys, spec.key_types, min(wanted, MOST_BUCKETS - spec.buckets))
    cuts = (*spec.cuts, first, *(cut for cut in further if bytes_order(cut) > bytes_order(first)))
    return with_cuts(spec, cuts) if len(cuts) < MOST_BUCKETS else spec


def _is_long(part: Stored) -> bool:
    return isinstance(part, str | bytes) and len(part) > LONGEST_FIRST


def _greatest(storage: Storage, view: View, place: SegmentFile) -> Key:
    """The greatest key of an index file."""
    types, schema = view.spec.key_types, view.spec.entry_schema
    tree = open_index_file(storage, place, view.spec, LookupStats())
    run = next(tree.runs(None, None, True, LookupStats()))
    keys = tree.decoded([run], [column.name for column in schema.keys])
    return tuple(stored_values(one.slice(run.entries - 1), kind)[0] for one, kind in zip(keys, types, strict=True))


def _batches(
    spec: IndexSpec, root: SourceRoot, described: Sequence[Described], most: int, firsts: bool = False
) -> Iterator[list[pa.Array]]:
    """The key columns of up to `most` ranges of these files, evenly; with `firsts` of the first batch of each."""
    bare, splits = replace(spec, include=()), [(one.entry.info, split) for one in described for split in one.splits]
    for info, split in splits[:: -(-len(splits) // most) or 1]:
        for columns in scan_file(root.storage, info, bare, split, lambda ragged: None):
            yield columns[: len(spec.key_types)]
            if firsts:
                break


def _sample(spec: IndexSpec, root: SourceRoot, described: Sequence[Described]) -> list[pa.Array]:
    """Keys of these files, evenly. Of files with more rows than SCANNED_ROWS some ranges are read."""
    rows = sum(one.likely_rows for one in described)
    splits = sum(len(one.splits) for one in described)
    stride = max(1, min(rows, SCANNED_ROWS) // SAMPLED_KEYS)
    picked: list[list[pa.Array]] = [[pa.array([], key_type(kind).arrow)] for kind in spec.key_types]
    begin = 0  # the next row to take
    for columns in _batches(spec, root, described, max(1, splits * SCANNED_ROWS // max(rows, SCANNED_ROWS))):
        there = pa.array(np.arange(begin, len(columns[0]), stride))
        begin += len(there) * stride - len(columns[0])
        for one, column in zip(picked, columns, strict=True):
            one.append(column.take(there))
    return [pa.concat_arrays(one) for one in picked]
