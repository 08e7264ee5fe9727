"""Proof that pointers lead where they say: rows are read back, their keys compared."""

from collections.abc import Mapping, Sequence

from btree import BTreeReader, DamagedIndexFile, bucket_of
from btree.hashing import xxhash64
from shadow.fetch import Fetcher, Located
from shadow.filter_files import open_filter
from shadow.index_files import pointer_of
from shadow.lookup import Hit
from shadow.segments import IndexFileEntry, SourceFileEntry
from shadow.spec import IndexSpec
from shadow.storage import ReadStats, Storage

SAMPLED_FILES = 16
ENTRIES_PER_FILE = 4
CACHE_BYTES = 16 * 1024 * 1024


def verify_sample(
    index: Storage,
    source: Storage,
    spec: IndexSpec,
    index_files: Sequence[IndexFileEntry],
    source_files: Sequence[SourceFileEntry],
) -> int:
    """Read some entries of some index files, and the rows they point to; how many rows were compared.

    DamagedIndexFile when an entry lies in an index file where no look-up would find it, or its key does not pass the
    file's filter; StalePointer when a row does not hold its key."""
    fetcher = Fetcher(source, spec, CACHE_BYTES)
    by_path: Mapping[str, SourceFileEntry] = {file.path: file for file in source_files}
    step = -(-len(index_files) // SAMPLED_FILES) or 1
    compared = 0
    for entry in index_files[::step]:
        filter_ = open_filter(index, entry.filter) if entry.filter is not None else None
        with index.open(entry.path) as reader:
            for key, value in BTreeReader(reader).sample(ENTRIES_PER_FILE):
                pointer = pointer_of(value)
                file = by_path.get(pointer.data_filename)
                bucket = bucket_of(key, spec.key_types, spec.buckets)
                if file is None or file.partition != entry.partition or bucket != entry.bucket:
                    raise DamagedIndexFile(
                        f"holds an entry of bucket {bucket} and file {pointer.data_filename}, which belongs elsewhere",
                        f"{index.root}/{entry.path}",
                        0,
                    )
                if filter_ is not None and not filter_.may_contain(xxhash64(key, spec.key_types)):
                    raise DamagedIndexFile(f"denies a key of {entry.path}, its index file", filter_.path, 0)
                fetcher.table(file, [Located(Hit(pointer, file, ()), key)], [], ReadStats())
                compared += 1
    return compared
