"""The index of an append, opened once; and the source of an index that does not exist yet, which may be empty."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

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

    @property
    def request(self) -> BuildRequest:
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
        return new_spec(self.request, root, format_name, tuple(self.partition_by), [none])


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


class Target:
    """The index of an append, opened once. `origin` says how to build one that does not exist yet. SpecMismatch where
    the index has another source or key than `origin`."""

    def __init__(self, index: Place, origin: Origin | None) -> None:
        self.location = as_location(index)
        self.origin = origin
        self._opened: Index | None = None
        self._built = 0  # the newest snapshot that a build has reported

    @cached_property
    def storage(self) -> Storage:
        return storage_at(self.location)

    @property
    def opened(self) -> Index | None:
        """The index, at a snapshot that is not older than those of this run's builds; None if it does not exist, and
        `origin` says how to build it. IndexNotFound where there is neither."""
        opened = self.newest()
        if opened is None:
            self.required_origin()
        elif self.origin is not None:
            self.origin.check(self.location, opened.spec)
        return opened

    def newest(self) -> Index | None:
        """As `opened`, also where the index has another source or key than `origin`."""
        opened = self._opened
        if opened is not None and opened.view.snapshot.number < self._built:
            opened.refresh()
        if opened is None or opened.view.snapshot.number < self._built:  # not yet listed, or built anew
            with suppress(IndexNotFound):
                opened = open_index(self.location)
        self._opened = opened
        return opened

    def required_origin(self) -> Origin:
        """The origin. IndexNotFound where there is none."""
        if self.origin is None:
            raise IndexNotFound("no index there", self.location, action=Action.NAME_SOURCE)
        return self.origin

    def source(self) -> Origin:
        """The source of the index, or the one of `origin`."""
        opened = self.opened
        return origin_of(opened.spec) if opened is not None else self.required_origin()

    def build(
        self,
        engine: Engine,
        source: Origin,
        progress: Progress | None,
        batch: str | None = None,
        full: bool = False,
        vanished: Vanished = Vanished.REFUSE,
    ) -> BuildResult:
        """Index a source. `vanished` is the treatment of files that are gone from it."""
        request = replace(source.request, batch=batch, full=full, vanished=vanished)
        result = build_index(engine, source.location, self.location, request, progress)
        self._built = max(self._built, result.snapshot)
        return result

    def ready(
        self, engine: Engine, full: bool, progress: Progress | None = None, vanished: Vanished = Vanished.REFUSE
    ) -> Index | None:
        """The index, built from `origin` if it does not exist; with `full`, every source file is indexed again. None if
        the source has no files yet."""
        if full:
            spec = spec_on_record(self.storage)
            source = origin_of(spec) if spec is not None else self.required_origin()
            self.build(engine, source, progress, full=True, vanished=vanished)
        if self.opened is None and self.origin is not None and self.origin.has_files():
            self.build(engine, self.origin, progress)
        return self.opened
