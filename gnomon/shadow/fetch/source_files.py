"""The files of a source: opened only while they are as they were indexed, with their metadata kept in memory. And the
cost of an answer: reads, bytes and time."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, cast

from gnomon.base.errors import Action
from gnomon.btree.blocks import LookupStats
from gnomon.shadow.errors import FileChanged, StalePointer
from gnomon.shadow.fetch.page_maps import LearnedMaps, damaged, read_page_maps
from gnomon.shadow.metadata import IndexSpec, SourceFileEntry
from gnomon.shadow.storage import (
    NO_INODE,
    Begun,
    ByteCache,
    CacheCounts,
    CachedFile,
    CacheShare,
    EarlyCache,
    Identity,
    OpenFile,
    Readable,
    ReadStats,
    Sized,
    Storage,
    Trace,
    check_may_wait,
    difference,
    identity,
    is_local,
    join,
    kept_at,
    may_wait,
    status_in_memory,
    step_of,
)
from gnomon.sources import FORMATS, DamagedMaps, MappedFile, SourceFile, open_mapped, open_source


@dataclass
class FetchReads(ReadStats):
    """Reads of source files, and reads of their recorded page maps (`page_maps`), which lie in the index. `opened` has
    the files that rows were read from, each with the identity that it had when it was opened."""

    page_maps: ReadStats = field(default_factory=ReadStats)
    opened: dict[str, Identity] = field(default_factory=dict)

    def add(self, other: "FetchReads") -> None:
        """Add the counts of another fetch."""
        self.opened |= other.opened
        for mine, others in ((self, other), (self.page_maps, other.page_maps)):
            mine.reads += others.reads
            mine.bytes += others.bytes


class TimedStep(NamedTuple):
    """A look-up or a fetch: its begin and its end (of `time.perf_counter_ns`) and what it cost, by names of counts."""

    step: str
    begin_ns: int
    end_ns: int
    counts: Mapping[str, int]


@dataclass
class FetchStats:
    """The cost of an answer: the index look-up, the reads of the source and of its page maps, and microseconds of
    each. `trace`, if given, records each step; `timed`, if given, each look-up and fetch as a whole."""

    snapshot: int = 0
    index: LookupStats = field(default_factory=LookupStats)
    source: FetchReads = field(default_factory=FetchReads)
    lookup_us: int = 0
    fetch_us: int = 0
    trace: Trace | None = None
    timed: list[TimedStep] | None = None

    def add_lookup(self, begin_ns: int) -> None:
        """Add a look-up that began then (of `time.perf_counter_ns`) and ends now."""
        end_ns = time.perf_counter_ns()
        self.lookup_us += (end_ns - begin_ns) // 1000
        if self.timed is not None:
            index = self.index
            counts = {"nodes": index.nodes, "filter_checks": index.filter_checks}
            self._time("lookup", begin_ns, end_ns, {**counts, "reads": index.reads, "bytes": index.bytes})

    def add_fetch(self, begin_ns: int) -> None:
        """Add a fetch that began then (of `time.perf_counter_ns`) and ends now."""
        end_ns = time.perf_counter_ns()
        self.fetch_us += (end_ns - begin_ns) // 1000
        if self.timed is not None:
            source, maps = self.source, self.source.page_maps
            read = {"reads": source.reads + maps.reads, "bytes": source.bytes + maps.bytes}
            self._time("fetch", begin_ns, end_ns, {"files": self.source_files, **read})

    def _time(self, step: str, begin_ns: int, end_ns: int, totals: Mapping[str, int]) -> None:
        """Record a step: its cost is what the totals have grown by since the one before."""
        assert self.timed is not None
        earlier = [one.counts for one in self.timed if one.step == step]
        counts = {name: total - sum(one[name] for one in earlier) for name, total in totals.items()}
        self.timed.append(TimedStep(step, begin_ns, end_ns, counts))

    @property
    def source_files(self) -> int:
        """The number of source files that were read."""
        return len(self.source.opened)

    def to_json(self) -> dict[str, Any]:
        """The costs as a JSON object, with the steps of the trace, if there is one."""
        counts = {name: getattr(self, name) for name in ("snapshot", "source_files", "lookup_us", "fetch_us")}
        index = {name: value for name, value in vars(self.index).items() if name != "visits"}
        steps = {} if self.trace is None else {"steps": self.trace.to_json()}
        source = {name: value for name, value in asdict(self.source).items() if name != "opened"}
        return {**counts, "index": index, "source": source, **steps}


class SourceFiles:
    """Opens the files of one source. One cache, of `cache_bytes`, keeps parsed file metadata, and another, of
    `page_bytes`, unpacked pages. A file is opened for each use, so that a changed one is noticed. Recorded page maps
    are read from `index`, and not used without it. `action` is the advice where a file changed since it was indexed.
    What fetches learn about pages is kept in `learned`, and the metadata of remote files in its cache on disk."""

    def __init__(
        self,
        storage: Readable,
        spec: IndexSpec,
        cache_bytes: int,
        index: Storage | None = None,
        page_bytes: int = 0,
        action: Action = Action.BUILD_AGAIN,
        learned: LearnedMaps | None = None,
    ) -> None:
        self._storage = storage
        self._action = action
        self._spec = spec
        self._index = index
        self._sources: EarlyCache[SourceFile] = EarlyCache(cache_bytes)
        mapped = FORMATS[spec.format].page_maps is not None
        self._pages: ByteCache[Sized] | None = ByteCache(page_bytes) if page_bytes and mapped else None
        self._learned = learned if mapped else None
        self._disk = None if learned is None else learned.cache

    @property
    def cache_counts(self) -> dict[str, CacheCounts]:
        """The counts of the caches of file metadata and, for formats with pages, of pages."""
        pages = {} if self._pages is None else {"source_pages": self._pages.counts}
        return {"source_files": self._sources.counts, **pages}

    def leave_to_pages(self, limit: int) -> None:
        """Set the most bytes of pages and metadata together. Pages get the bytes that metadata leaves free."""
        if self._pages is not None:
            self._pages.resize(max(0, limit - self._sources.cache_bytes))

    @contextmanager
    def opened(
        self, file: SourceFileEntry, stats: FetchReads, trace: Trace | None = None
    ) -> Iterator[tuple[OpenFile, SourceFile]]:
        """A reader of a file that is still the indexed one, and its metadata. StalePointer, here or at a later read,
        where it is not."""
        with self._open(file, stats) as reader, self._source(file, reader, stats, trace) as source:
            yield reader, source

    def check_file(self, file: SourceFileEntry) -> None:
        """Raise SourceError unless a file is still the one that was indexed and its metadata can be read."""
        stats = FetchReads()
        with self._open(file, stats) as reader:
            self.look(file)
            with self._source(file, reader, stats):
                pass

    def look(self, file: SourceFileEntry) -> None:
        """Check a file on the store. FileChanged or FileNotFoundError where it is not the one that was indexed. No call
        is made where the store keeps the indexed one."""
        if kept_at(file.etag):
            return
        with self._storage.open(file.path) as found:
            if how := difference(file, found):
                raise FileChanged(found.name, how, found.size)

    def is_unchanged(self, file: SourceFileEntry, known: Identity) -> bool:
        """Whether a file exists, is the indexed one, and still has this identity. This is one call to the store, which
        may raise StorageError, and none where the store keeps the indexed one."""
        if kept_at(file.etag):
            return True
        try:
            with self._storage.open(file.path) as found:
                return not difference(file, found) and identity(found) == known
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False

    def is_surely_unchanged(self, file: SourceFileEntry, known: Identity) -> bool:
        """`is_unchanged` from the memory of the system, without a wait. False also where this memory has no answer."""
        where = join(self._storage.root, file.path)
        found = status_in_memory(where) if is_local(where) else None
        return found is not None and not difference(file, found) and identity(found) == known

    def metadata(self, file: SourceFileEntry) -> SourceFile:
        """The metadata of a source file."""
        with self.opened(file, FetchReads()) as (_, source):
            return source

    def has_maps(self, file: SourceFileEntry, maps: bytes) -> bool:
        """Whether recorded page maps of a source file equal its current ones."""
        with self._open(file, FetchReads()) as reader:
            found = open_mapped(reader, self._spec.format, self._spec.read_options)
            if found.digest != file.digest:
                raise StalePointer("the file is not the one that was indexed", reader.name, action=Action.TOUCH)
            return found.has_maps(reader, maps)

    def begin(self, file: SourceFileEntry, stats: FetchReads, trace: Trace | None) -> Begun[SourceFile] | None:
        """Begin to read the metadata of a remote file, until `end`. Returns None where it is cached or already begun.
        Errors appear when rows of the file are read."""

        def opened() -> SourceFile:
            with (
                step_of(trace, "source_ahead", file.path, stats),
                self._storage.open(file.path, stats, file.info) as reader,
            ):
                return self._opened(file, reader, stats, trace)

        return self._sources.begin(_key(file), opened) if self._storage.is_remote else None

    def end(self, file: SourceFileEntry) -> None:
        """End a read that `begin` began: the caller no longer needs the file's metadata."""
        self._sources.end(_key(file))

    def _opened(self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads, trace: Trace | None) -> SourceFile:
        """The file's metadata, read concurrently with its recorded page maps, if any."""
        check_may_wait(file.path)  # metadata may be long to parse
        found = self._read_metadata(file, reader, stats, trace)
        key = _key(file, identity(reader))
        mapped = cast(MappedFile, found)
        if self._pages is not None:
            mapped.keep_in(CacheShare(self._pages, key))
        if self._learned is not None:
            self._learned.opened((self._storage.root, *key), mapped)
        return found

    def _read_metadata(
        self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads, trace: Trace | None
    ) -> SourceFile:
        """The file's metadata, from the cache on disk if it has them. They are kept there once they are proven to be
        those that were indexed. A web server may make an etag of time and size, and HDFS keeps it in a rewrite: then
        only the digest of what is read now tells files apart."""
        if self._disk is None or not reader.is_remote or reader.name.startswith(("http://", "https://", "hdfs://")):
            return self._with_maps(file, reader, stats, trace)
        cached = CachedFile(self._disk, reader.name, file.info, lambda: reader, (file.digest,), held=True)
        found = self._with_maps(file, cached, stats, trace)
        if found.digest == file.digest:
            cached.keep()
        return found

    def _with_maps(self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads, trace: Trace | None) -> SourceFile:
        index, entry, options = self._index, file.page_maps, self._spec.read_options
        if index is None or entry is None:
            return open_source(reader, self._spec.format, options)

        def read() -> bytes:
            with step_of(trace, "page_map", entry.path, stats.page_maps) as step:
                step.offset = entry.offset
                return read_page_maps(index, entry, stats.page_maps)

        maps = Begun(read)
        try:
            return open_mapped(reader, self._spec.format, options, maps)
        except DamagedMaps as error:
            found = open_source(reader, self._spec.format, options)
            if found.digest == file.digest:
                raise damaged(index, entry, error) from None
            return found  # another file than the one indexed: the caller reports it

    @contextmanager
    def _open(self, file: SourceFileEntry, stats: ReadStats) -> Iterator[OpenFile]:
        """Open a source file that is still the indexed one. StalePointer, here or at a later read, where it is not."""
        where = join(self._storage.root, file.path)
        try:
            with self._storage.open(file.path, stats, file.info) as reader:
                yield reader
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise StalePointer("the file is gone since it was indexed", where, action=self._action) from None
        except FileChanged as error:
            raise StalePointer(
                f"the file changed since it was indexed ({error.how})", where, action=self._action
            ) from None

    @contextmanager
    def _source(
        self, file: SourceFileEntry, reader: OpenFile, stats: FetchReads, trace: Trace | None = None
    ) -> Iterator[SourceFile]:
        """The file with its metadata. Metadata with another digest mean another file: a program can set size and
        time."""
        key = _key(file, identity(reader))
        with self._sources.use(key, lambda: self._opened(file, reader, stats, trace)) as source:
            if source.digest != file.digest:
                raise StalePointer("the file is not the one that was indexed", reader.name, action=Action.TOUCH)
            yield source
            if self._learned is not None and may_wait():  # a save of maps writes to a disk
                self._learned.fetched(cast(MappedFile, source))


def _key(file: SourceFileEntry, own: Identity = (0, *NO_INODE)) -> tuple[object, ...]:
    """The cache key of a file. A local file with another identity is read again, since a program can set size and
    modification time."""
    return (*file.info, file.digest, *own)
