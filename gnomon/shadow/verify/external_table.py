"""The differences between the snapshot and an engine's view of the index folder as a plain table.

Both are equal when the snapshot needs every file that engines see, and no file has an entry whose source file is dead
or whose row is masked: after a first build, and after compact and vacuum."""

from dataclasses import dataclass

from gnomon.shadow.metadata import View, masks_of
from gnomon.shadow.storage import FileInfo, Storage


@dataclass(frozen=True)
class PlainTable:
    """The files that the snapshot does not need, and the dead entries in its own files."""

    extra_files: tuple[FileInfo, ...]
    dead_entries: int

    @property
    def equals_snapshot(self) -> bool:
        return not self.extra_files and not self.dead_entries

    def to_json(self) -> dict[str, object]:
        return {
            "equals_snapshot": self.equals_snapshot,
            "extra_files": [info.path for info in self.extra_files],
            "dead_entries": self.dead_entries,
        }


def plain_table(storage: Storage, view: View) -> PlainTable:
    """List the folder as engines do, and compare."""
    needed = {file.path for segment in view.segments for file in segment.by_bucket.values()}
    extra = tuple(info for info in storage.list() if info.path not in needed)
    dead = sum(mask.rows for mask in masks_of(view.segments).values())
    for segment in view.segments:
        folders = {view.spec.folder_of(file.partition) for file in segment.live.values()}
        gone = [file for i, file in enumerate(segment.source_files) if i in segment.dead]
        dead += sum(file.rows for file in gone if view.spec.folder_of(file.partition) in folders)
    return PlainTable(extra, dead)
