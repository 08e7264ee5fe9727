"""Build: bring an index up to date with its source. The first build, the nightly one and the repair are the same."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from indexer.files import Described, check_unchanged, columns_of, describe, detect_format
from indexer.scan import scan
from indexer.specs import Request, check_request, check_types, new_spec
from indexer.write import write_index_files
from shadow.coverage import Diff, SourceRoot, check_apart, diff, source_root
from shadow.errors import IndexNotFound, StorageError, UsageError
from shadow.publish import Changes, new_segment_id, publish
from shadow.segments import IndexFileEntry
from shadow.snapshots import Snapshot, newest_snapshot
from shadow.spec import IndexSpec, read_spec
from shadow.storage import Storage, storage_at
from shadow.verify import verify_sample
from shadow.view import View, open_view
from sources import FORMATS


@dataclass(frozen=True)
class BuildResult:
    """What a build did. Bytes are of index files written, of the source files indexed, and of
    their indexed columns, which are what the scan reads."""

    snapshot: int
    committed: bool
    new_files: int
    changed_files: int
    vanished_files: int
    rows_indexed: int
    rows: int
    index_files: int
    index_bytes: int
    source_bytes: int
    source_bytes_read: int
    buckets: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def build(
    spark: SparkSession,
    source: str,
    index: str,
    keys: Sequence[str],
    include: Sequence[str] = (),
    format: str = "auto",
    buckets: int | None = None,
    batch: str | None = None,
) -> BuildResult:
    """Index the files of `source` that the newest snapshot of `index` does not cover, and drop those that are gone.

    The snapshot is committed only when each partition has exactly as many entries as its files have rows, the
    files written have been read back, and sampled pointers lead to rows with their keys. `batch` is the id of the
    dedup load that appended the files. Errors: those of `shadow.errors`."""
    begin = time.perf_counter()
    request = Request(keys, include, buckets)
    if format not in ("auto", *FORMATS):
        raise UsageError(f"format: expected one of auto, {', '.join(FORMATS)}, found {format!r}")
    storage, root = storage_at(index), source_root(source)
    check_apart(root, storage)
    _check_folder(storage)
    view = _open(storage)
    files = root.list()
    difference = diff(files, view.segments if view else ())
    partitions = root.partitions(files)
    format_name = format if format != "auto" else view.spec.format if view else detect_format(root, files)
    if view is not None:
        check_request(view.spec, request, root, format_name, partitions, storage.root)
        if difference.is_empty and batch is None:
            return _result(view.snapshot, difference, [], [], view.spec, False, begin)
    described = describe(root, format_name, bool(partitions), difference.to_index, [*keys, *include])
    spec = view.spec if view else new_spec(request, root, format_name, partitions, described)
    check_types(spec, described)

    segment = new_segment_id()
    written = _index(spark, storage, root, spec, segment, described)
    check_unchanged(root, described)
    verify_sample(storage, root.storage, spec, written, [one.entry for one in described])
    changes = Changes(
        operation="build" if batch is None else "dedup",
        index_files=written,
        source_files=[one.entry for one in described],
        dead=difference.dead,
        columns=columns_of(described, view.snapshot.columns if view else {}),
        batch=batch,
        counts={
            "new": len(difference.new),
            "changed": len(difference.changed),
            "vanished": len(difference.vanished),
            "rows_indexed": sum(one.entry.rows for one in described),
        },
    )
    snapshot = publish(storage, spec, view.snapshot if view else None, changes, segment)
    return _result(snapshot, difference, described, written, spec, True, begin)


def _check_folder(storage: Storage) -> None:
    """Refuse an index that is a file, before any work."""
    try:
        storage.open("").close()
    except (FileNotFoundError, IsADirectoryError):
        return
    except NotADirectoryError:
        pass
    raise StorageError(f"{storage.root}: a file is there, or above it; expected a folder for the index")


def _open(storage: Storage) -> View | None:
    """The newest snapshot; None where there is no index yet, or one whose first build never committed."""
    try:
        read_spec(storage)
    except IndexNotFound:
        return None
    return open_view(storage) if newest_snapshot(storage) is not None else None


def _index(
    spark: SparkSession,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: Sequence[Described],
) -> list[IndexFileEntry]:
    with_rows = [one for one in described if one.entry.rows]
    if not with_rows:
        return []
    entries = scan(spark, root.storage.root, spec, with_rows)
    return write_index_files(entries, storage.root, spec, segment, with_rows)


def _result(
    snapshot: Snapshot,
    difference: Diff,
    described: Sequence[Described],
    written: Sequence[IndexFileEntry],
    spec: IndexSpec,
    committed: bool,
    begin: float,
) -> BuildResult:
    return BuildResult(
        snapshot=snapshot.number,
        committed=committed,
        new_files=len(difference.new),
        changed_files=len(difference.changed),
        vanished_files=len(difference.vanished),
        rows_indexed=sum(one.entry.rows for one in described),
        rows=snapshot.rows,
        index_files=len(written),
        index_bytes=sum(file.size for file in written),
        source_bytes=sum(one.entry.size for one in described),
        source_bytes_read=sum(one.scan_bytes for one in described),
        buckets=spec.buckets,
        seconds=round(time.perf_counter() - begin, 3),
    )
