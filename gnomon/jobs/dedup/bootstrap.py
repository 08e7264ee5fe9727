"""The start of an append without an index: the source to index, or the first rows of an empty source."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.jobs import Progress
from gnomon.jobs.build import FORMAT_NAMES, BuildRequest, BuildResult, Engine, Vanished, build_index, new_spec
from gnomon.jobs.files import Described, is_table
from gnomon.shadow import Index, open_index
from gnomon.shadow.commit import spec_on_record
from gnomon.shadow.errors import IndexNotFound, SourceNotFound, SpecMismatch, StorageError, UsageError
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry, SourceRoot, source_root
from gnomon.shadow.storage import STAGED, Place, Storage, as_location, source_storage, storage_at
from gnomon.shadow.tables import is_lake, lake_source

FIRST_FORMAT = "parquet"  # the default format of a source without files


@dataclass(frozen=True)
class Origin:
    """The arguments of `build` for a source without an index. `partition_by`: the partition columns of a source that
    has no files yet; one with files has its own."""

    source: Place
    keys: Sequence[str]
    include: Sequence[str] = ()
    format: str = "auto"
    buckets: int | None = None
    flat: bool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", as_location(self.source))
        if self.format not in FORMAT_NAMES:
            raise UsageError(f"source_format: expected one of {', '.join(FORMAT_NAMES)}, found {self.format!r}")

    @property
    def location(self) -> str:
        """The source as text."""
        return as_location(self.source)

    def has_files(self) -> bool:
        """Whether the source has files, or is a table, which can be indexed without files. UsageError for a single
        file. That a remote folder is empty is believed once a listing shows a file that was put there for this."""
        if is_table(self.location) or is_lake(self.location):
            return True
        try:
            root = source_root(self.location)
            if root.source.file_name:
                raise UsageError("a source of one file cannot be appended to; dedup needs a folder", self.location)
            if any(info.size for info in root.storage.list()):  # the build reports errors of the files
                return True
        except SourceNotFound:
            pass
        storage = storage_at(self.location)
        return storage.is_remote and _lists_others(storage)

    def check(self, index: str, spec: IndexSpec) -> None:
        """Raise SpecMismatch where an index has another source or key."""
        keys = [key.name for key in spec.keys]
        if not self._is_source_of(spec) or keys != list(self.keys):
            raise SpecMismatch(
                f"it is of {spec.source_name} by {', '.join(keys)}, found source {self.location} by "
                f"{', '.join(self.keys)}; leave these out, or name another index",
                index,
            )

    def _is_source_of(self, spec: IndexSpec) -> bool:
        if is_lake(self.location):
            return lake_source(self.location).name == spec.source_name
        if is_table(self.location):
            return bool(spec.table)
        return not spec.table and storage_at(self.location).root == spec.source

    def build(
        self,
        engine: Engine,
        index: str,
        progress: Progress | None,
        batch: str | None = None,
        full: bool = False,
        vanished: Vanished = Vanished.REFUSE,
    ) -> BuildResult:
        """Index the source. `vanished` is the treatment of files that are gone from it."""
        request = replace(self._request, batch=batch, full=full, vanished=vanished)
        return build_index(engine, self.location, index, request, progress)

    @property
    def _request(self) -> BuildRequest:
        return BuildRequest(
            self.keys, self.include, self.buckets, format=self.format, flat=self.flat, options=self.options
        )

    def first_spec(self, batch: pa.Schema) -> IndexSpec:
        """The spec for the check of the first rows of a source. UsageError where there can be none."""
        if unknown := [name for name in self.partition_by if name not in batch.names]:
            raise UsageError(f"partition_by: the batch has no column {unknown[0]}; it has {', '.join(batch.names)}")
        root = SourceRoot(source_storage(storage_at(self.location).root))
        format_name = FIRST_FORMAT if self.format == "auto" else self.format
        columns = pa.schema([one for one in batch if one.name not in self.partition_by])
        none = Described(SourceFileEntry("batch", "", 0, 0, 0, ""), columns, 1, 0, [])
        return new_spec(self._request, root, format_name, tuple(self.partition_by), [none])


def _lists_others(storage: Storage) -> bool:
    """Whether a folder has other files than one that is put there for the time of the call. StorageError where that is
    not listed."""
    name = f"{STAGED}{secrets.token_hex(16)}"
    storage.put_new(name, [b"listed?"])
    try:
        sizes = {info.path: info.size for info in storage.list(hidden=frozenset([name]))}
    finally:
        storage.delete(name)
    if not sizes.pop(name, 0):
        what = "the store's listing lacks a file that was just written, so the source may have files; try again later"
        raise StorageError(what, f"{storage.root}/{name}")
    return any(sizes.values())


def origin_of(spec: IndexSpec) -> Origin:
    """The source of an index."""
    keys, include = [key.name for key in spec.keys], [one.name for one in spec.include]
    return Origin(spec.source_name, keys, include, spec.format)


def existing(index: str, origin: Origin | None) -> Index | None:
    """The index; None if `origin` says how to build it. SpecMismatch where it does not fit `origin`, IndexNotFound
    without an index and an origin."""
    try:
        opened = open_index(index)
    except IndexNotFound:
        check_origin(index, origin)
        return None
    if origin is not None:
        origin.check(index, opened.spec)
    return opened


def ready(
    engine: Engine,
    index: str,
    origin: Origin | None,
    full: bool,
    progress: Progress | None = None,
    vanished: Vanished = Vanished.REFUSE,
) -> Index | None:
    """Return the index. Build it from `origin` if it does not exist; with `full`, index every source file again. None
    if the source has no files yet. IndexNotFound if there is neither an index nor an origin."""
    if full:
        spec = spec_on_record(storage_at(index))
        of = origin_of(spec) if spec is not None else check_origin(index, origin)
        of.build(engine, index, progress, full=True, vanished=vanished)
    opened = existing(index, origin)
    if opened is None and origin is not None and origin.has_files():
        origin.build(engine, index, progress)
        return open_index(index)
    return opened


def check_origin(index: str, origin: Origin | None) -> Origin:
    """The origin. IndexNotFound where there is neither an index nor an origin."""
    if origin is None:
        raise IndexNotFound("no index there", index, action=Action.NAME_SOURCE)
    return origin
