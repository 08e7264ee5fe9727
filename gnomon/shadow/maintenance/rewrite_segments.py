"""The live entries of several segments, as the index files of one segment.

The new segment names an index file unchanged if it is alone in its bucket and its segment has no dead entry in its
folder. All other index files are merged and written. Where buckets or layout change, all are written."""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from gnomon.shadow.lookup import write_index_file
from gnomon.shadow.maintenance.merge import merged
from gnomon.shadow.metadata import IndexFileEntry, IndexSpec, Segment, SegmentFile, SourceFileEntry
from gnomon.shadow.storage import Storage


class Rewritten(NamedTuple):
    """The index files that stay, and those that were written."""

    kept: Sequence[IndexFileEntry]
    written: Sequence[IndexFileEntry]

    @property
    def all(self) -> list[IndexFileEntry]:
        return [*self.kept, *self.written]


def folders_of(spec: IndexSpec, files: Iterable[SourceFileEntry]) -> set[str]:
    """The folders in which source files have their index files."""
    return {spec.folder_of(file.partition) for file in files}


def dead_folders(spec: IndexSpec, segment: Segment) -> set[str]:
    """The folders in which a segment has dead entries."""
    dead = (segment.source_files[i] for i in segment.dead)
    return folders_of(spec, (file for file in dead if file.rows))


def rewrite(
    storage: Storage, spec: IndexSpec, segments: Sequence[Segment], target: IndexSpec, segment_id: str
) -> Rewritten:
    """The index files of one segment for the live source files of `segments`. The segments have `spec`; the result has
    the buckets and the layout of `target`. The entries of a key come in the order of the segments. Errors as in
    `merge.merged`."""
    kept: list[IndexFileEntry] = []
    written: list[IndexFileEntry] = []
    if spec.flat != target.flat:
        parts = [SegmentFile(segment, file) for segment in segments for file in segment.by_bucket.values()]
        return Rewritten([], list(_merge(storage, spec, parts, target, segment_id)))
    dead = {segment.id: dead_folders(spec, segment) for segment in segments}
    for folder in sorted({folder for segment in segments for folder in folders_of(spec, segment.live.values())}):
        clean = {segment.id for segment in segments if target == spec and folder not in dead[segment.id]}
        as_they_are, parts = _split_by_reuse(segments, folder, clean)
        kept += as_they_are
        written += _merge(storage, spec.in_folder(folder), parts, target.in_folder(folder), segment_id)
    return Rewritten(kept, written)


def _split_by_reuse(
    segments: Sequence[Segment], folder: str, clean: Set[str]
) -> tuple[list[IndexFileEntry], list[SegmentFile]]:
    """The index files of a folder that may stay, and the others. `clean` has the segments whose entries in the folder
    are all live and in their target buckets."""
    by_bucket: dict[int, list[SegmentFile]] = {}
    for segment in segments:
        for file in segment.index_files_in.get(folder, ()):
            by_bucket.setdefault(file.bucket, []).append(SegmentFile(segment, file))
    kept, merge = [], []
    for parts in by_bucket.values():
        segment, file = parts[0]
        if len(parts) == 1 and segment.id in clean:
            kept.append(file)
        else:
            merge += parts
    return kept, merge


def _merge(
    storage: Storage, spec: IndexSpec, parts: Sequence[SegmentFile], target: IndexSpec, segment_id: str
) -> Iterator[IndexFileEntry]:
    for folder, bucket, batches in merged(storage, spec, parts, target):
        yield write_index_file(storage, target, segment_id, folder, bucket, batches)
