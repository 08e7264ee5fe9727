"""Opening an index."""

import os

from gnomon.shadow.current_snapshot import CACHE_BYTES, ReadSettings
from gnomon.shadow.errors import UsageError
from gnomon.shadow.index import Index
from gnomon.shadow.metadata import check_number, open_view, snapshot_of_version
from gnomon.shadow.newest_version import ReadThroughLimits, check_has_versions
from gnomon.shadow.storage import Place, as_location, storage_at


def open_index(
    location: Place,
    snapshot: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    filters: bool = True,
    page_maps: bool = True,
    keep_pages: bool = True,
    table_version: str | int | None = None,
    newest: bool = False,
    maps_folder: str | os.PathLike[str] | None = None,
) -> Index:
    """Open the index at a path or URL, at its newest snapshot or at the one asked for, by its number or, for the index
    of a Delta or Iceberg table, by the version of the table that it covers. `filters=False` reads no Bloom filters and
    `page_maps=False` no recorded page maps: the answers are the same, at more cost. `keep_pages=False` keeps no pages,
    for callers that read each page of the source once. `newest` answers as of the newest version of a lake table, also
    where the index does not cover it yet; IndexBehind where it is too far behind, UsageError for an index of files,
    which have no versions. `maps_folder` is a local folder, in which fetches keep what they learn about the pages of
    Parquet files, so that they read less after a restart. The folder is written at most every 30 seconds, and at the
    end of a `with` block.

    IndexNotFound, SnapshotNotFound, NewerFormat or DamagedMetadata say why it cannot be opened."""
    storage = storage_at(location)
    if table_version is not None:
        if snapshot is not None:
            raise UsageError("snapshot and table_version: expected one of them")
        snapshot = snapshot_of_version(storage, str(table_version))
    check_number("snapshot", snapshot)
    limits = ReadThroughLimits() if newest else None
    maps = None if maps_folder is None else as_location(maps_folder)
    if maps == "":
        raise UsageError("maps_folder: an empty path; expected a folder (. is the current one)")
    settings = ReadSettings(cache_bytes, filters, page_maps, keep_pages, limits, maps)
    view = open_view(storage, snapshot)
    if newest:
        check_has_versions(view, storage.root)
    index = Index(storage, view, snapshot is not None, settings)
    return index.at_newest_version() if newest else index
