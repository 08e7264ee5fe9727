"""Build: bring an index up to date with its source. First builds, nightly builds and repairs use the same code."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from gnomon.jobs.build.engine import Engine, LocalEngine
from gnomon.jobs.build.planning import Plan, plan
from gnomon.jobs.build.ranges import in_ranges, with_further_ranges
from gnomon.jobs.build.specs import (
    BuildRequest,
    Vanished,
    check_case,
    check_ragged,
    check_types,
    infer_schema,
    new_spec,
)
from gnomon.jobs.files import Described, check_unchanged, columns_of, describe
from gnomon.jobs.stages import Progress, Span, Stages, job_span
from gnomon.shadow.commit import Changes, new_segment_id, publish_full, record
from gnomon.shadow.commit import adopt as adopt_source
from gnomon.shadow.errors import ConcurrentCommit
from gnomon.shadow.maintenance import masks_at, publish_build
from gnomon.shadow.metadata import (
    RANGE,
    IndexFileEntry,
    IndexSpec,
    PageMapsEntry,
    PageMapsSetting,
    Segment,
    Snapshot,
    SourceRoot,
    most_maps,
    put_back,
    schema_option,
)
from gnomon.shadow.storage import Place, Storage, as_location, patiently, probe
from gnomon.shadow.tables import check_constants
from gnomon.shadow.verify import verify_sample

JOB = "build"  # in the name of its span
TOLD = ("snapshot", "rows_indexed", "new_files", "changed_files", "vanished_files", "index_bytes", "source_bytes_read")
ATTEMPTS = 10  # of a build that conflicts with other commits, each of which did a part of its work


@dataclass(frozen=True)
class BuildResult:
    """The result of a build. It has the bytes of the written index files, of the indexed source files, and of their
    indexed columns, which the scan reads. `skipped_files` were covered already and not read; `empty_files` were indexed
    and have no rows. `stage_seconds` has the seconds of each stage, out of `seconds`. `mapped_files` is the number of
    files whose page maps were recorded, `page_map_bytes` their bytes. `flat` is the layout. `ragged_rows` are the
    indexed rows with fewer or more fields than the header of their CSV file."""

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
    skipped_files: int = 0
    empty_files: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    adopted_files: int = 0
    moved_to: str = ""
    mapped_files: int = 0
    page_map_bytes: int = 0
    flat: bool = False
    ragged_rows: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def build(
    engine: Engine | None,
    source: Place,
    index: Place,
    keys: Sequence[str],
    include: Sequence[str] = (),
    format: str = "auto",
    buckets: int | None = None,
    batch: str | None = None,
    *,
    flat: bool | None = None,
    adopt: bool = False,
    full: bool = False,
    options: Mapping[str, str] | None = None,
    page_maps: PageMapsSetting = False,
    partitions: Sequence[Mapping[str, object]] | None = None,
    progress: Progress | None = None,
    accept_vanished: bool = False,
    as_files: bool = False,
    table_version: str | int | None = None,
    order: str | None = None,
) -> BuildResult:
    """Index the files of `source` (a path, a URL, `table:db.name`, `delta:/path`, `iceberg:catalog.ns.table`) that the
    newest snapshot of `index` does not cover, and drop those that are gone.

    It commits the snapshot only when each partition has exactly as many entries as its files have rows, the written
    files have been read back, and sampled pointers lead to rows with their keys. `batch` is the id of the batch whose
    append added the files. `flat` lays a new index out flat. `adopt` takes over a copy of the source, in its own commit
    (`gnomon.shadow.commit.relocate`). `full` indexes every file again, which repairs a damaged index
    (`gnomon.shadow.commit.full_reindex`). `page_maps` records the page maps of all Parquet files, now and in later
    builds; "deep" also the value maps of their pages, for which it reads all pages. A separate commit adds those of
    files that are indexed already (`gnomon.shadow.commit.relocate`). `partitions` (`[{"dt": "2026-01-01"}]`,
    each with some or all columns) limits the build to the files of these partitions; an empty list makes a first build
    without rows. `progress` is called with each stage.

    FilesVanished where files with more than half of the indexed bytes are gone from the source and new files do not
    replace them: perhaps a disk is not mounted. `accept_vanished` confirms that they were deleted. UsageError where the
    source belongs to a Delta, Iceberg, Hudi, Lance or Paimon table, or is the output of a streaming query: its files
    hold rows that are not live; `as_files` indexes them nevertheless. `table_version` indexes a Delta or Iceberg table
    as of an older version. `order` "range" lays a new index out in ranges of keys, for quick answers in key order.
    Other errors are in `gnomon.shadow.errors`."""
    vanished = Vanished.DROP_ALL if accept_vanished else Vanished.DROP_SOME
    request = BuildRequest(
        keys,
        include,
        buckets,
        format=format,
        flat=flat,
        options=options or {},
        page_maps=page_maps,
        partitions=partitions,
        vanished=vanished,
        as_files=as_files,
        adopt=adopt,
        full=full,
        batch=batch,
        table_version=None if table_version is None else str(table_version),
        order=order,
    )
    engine = LocalEngine() if engine is None else engine
    return build_index(engine, as_location(source), as_location(index), request, progress)


@patiently()
def build_index(
    engine: Engine, source: str, index: str, request: BuildRequest, progress: Progress | None = None
) -> BuildResult:
    """Bring an index up to date, as `build` does. It retries, with ATTEMPTS attempts in all, where its changes conflict
    with another commit or a vacuum has removed its files."""
    begin, stages = time.perf_counter(), Stages(progress)
    with job_span(JOB, index) as span:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = _build(engine, source, index, request, stages)
            except ConcurrentCommit:
                if attempt == ATTEMPTS:
                    raise
            else:
                break
        _tell(span, result)
    return replace(result, seconds=round(time.perf_counter() - begin, 3), stage_seconds=stages.seconds)


def _build(engine: Engine, source: str, index: str, request: BuildRequest, stages: Stages) -> BuildResult:
    with stages.stage("list"):
        planned = plan(source, index, request, engine.read_table)
    if planned.view is not None:
        put_back(planned.storage, planned.view.spec)
    adopted, moved_to = 0, ""
    done: list[PageMapsEntry] = []
    with engine.running(f"gnomon build {planned.storage.root}"):
        if request.adopt and planned.view is not None:
            check_types(planned.view.spec, _described(engine, planned, request)[0])  # before anything is committed
            adopted = adopt_source(planned.storage, planned.root, planned.view)[1]
            moved_to = planned.root.name if _is_moved(planned, planned.view.spec) else ""
            planned = plan(source, index, replace(request, adopt=False), engine.read_table)
        if (
            request.page_maps
            and planned.view is not None
            and (planned.unmapped or _maps_more(request, planned.view.spec))
        ):
            done = _record(engine, planned, _with_setting(planned.view.spec, request), stages)
            planned = plan(source, index, replace(request, adopt=False, page_maps=False), engine.read_table)
        result = _update(engine, planned, request, stages)
    return replace(
        result,
        adopted_files=adopted,
        moved_to=moved_to,
        mapped_files=result.mapped_files + len(done),
        page_map_bytes=result.page_map_bytes + sum(one.length for one in done),
    )


def _tell(span: Span, result: BuildResult) -> None:
    span.tell(**{name: getattr(result, name) for name in TOLD})


def nothing_to_do(planned: Plan, request: BuildRequest) -> BuildResult | None:
    """The result of a build with nothing to index, drop, adopt or record; None for any other plan. It reads no rows,
    and writes a missing `spec.json` again."""
    view = planned.view
    if view is None or not planned.is_done or planned.adopted or planned.unmapped:
        return None
    if _is_moved(planned, view.spec) or _maps_more(request, view.spec):
        return None
    with job_span(JOB, planned.storage.root) as span:
        put_back(planned.storage, view.spec)
        result = _result(planned, view.snapshot, [], [], view.spec, False)
        _tell(span, result)
    return result


def _is_moved(planned: Plan, spec: IndexSpec) -> bool:
    """Whether the source lies elsewhere, or has another name, than the index has it."""
    return (spec.source.location, spec.source.name) != (planned.root.location, planned.root.name)


def _with_setting(spec: IndexSpec, request: BuildRequest) -> IndexSpec:
    return replace(spec, page_maps=most_maps(spec.page_maps, request.page_maps))


def _maps_more(request: BuildRequest, spec: IndexSpec) -> bool:
    """Whether the request is to record more page maps than the index does."""
    return _with_setting(spec, request) != spec


def build_metadata(planned: Plan, request: BuildRequest) -> BuildResult | None:
    """Commit a plan that reads no rows: files to drop, a version of a lake table that only deleted rows. None for any
    other plan, and where other commits came first."""
    if planned.needs_engine or request.full or request.adopt or request.page_maps or request.batch is not None:
        return None
    begin, stages = time.perf_counter(), Stages(None)
    try:
        with job_span(JOB, planned.storage.root) as span:
            result = _update(LocalEngine(), planned, request, stages)
            _tell(span, result)
    except ConcurrentCommit:
        return None
    return replace(result, seconds=round(time.perf_counter() - begin, 3), stage_seconds=stages.seconds)


def _record(engine: Engine, planned: Plan, spec: IndexSpec, stages: Stages) -> list[PageMapsEntry]:
    """Record the page maps of files that are indexed already."""
    storage, files = planned.storage, planned.unmapped
    probe(storage)
    made = engine.write_page_maps(storage, planned.root, spec, new_segment_id(), files, stages)
    record(storage, {file: made[file.path] for file in files}, spec.page_maps)
    return list(made.values())


def _update(engine: Engine, planned: Plan, request: BuildRequest, stages: Stages) -> BuildResult:
    """Commit a plan."""
    batch = request.batch
    storage, root, view, difference = planned.storage, planned.root, planned.view, planned.difference
    if view is not None and planned.is_done and batch is None:
        return _result(planned, view.snapshot, [], [], view.spec, False)
    with stages.stage("describe", len(difference.to_index), "files"):
        described, schema = _described(engine, planned, request)
    known = described if request.partitions is None or planned.spec else _opened(_of_all(planned), request, schema)
    spec = planned.spec or new_spec(request, root, planned.format, planned.partitions, known)
    spec = replace(_with_setting(spec, request), schema=schema)
    if planned.as_files:
        spec = replace(spec, source=replace(spec.source, as_files=True))
    check_types(spec, described)
    if root.source.columns is None:
        stay = view is not None and len(described) < len(planned.files)
        check_case(view.snapshot.columns if view is not None and stay else (), described)
    if root.source.versions is not None:
        for one in described:
            check_constants(root.source.versions.content, one.entry.path, one.schema.names)
    probe(storage)
    if spec.order == RANGE:
        with stages.stage("sample"):
            if planned.spec is None:
                spec = in_ranges(spec, root, described)
            elif view is not None:
                spec = with_further_ranges(storage, view, spec, root, described)

    segment = new_segment_id()
    asked = len(described)
    written, described = _write(engine, storage, root, spec, segment, described, stages)
    if len(described) < asked:
        difference = difference.only({one.entry.path for one in described})
        planned = replace(planned, difference=difference)
        if view is not None and planned.is_done and batch is None:
            return _result(planned, view.snapshot, [], [], view.spec, False)
    for one in described:
        check_ragged(one.entry.ragged, one.entry.rows, spec.read_options, one.entry.path)
    if described:
        with stages.stage("verify"):
            check_unchanged(root, described, spec)
            verify_sample(storage, root.storage, spec, written, [one.entry for one in described])
    versions = root.source.versions
    ours = Segment(segment, tuple(written), tuple(one.entry for one in described))
    after = [*difference.applied_to(view.segments if view is not None else ()), ours]
    changes = Changes(
        operation="build" if batch is None else "dedup",
        index_files=written,
        source_files=[one.entry for one in described],
        dead=difference.dead,
        columns=columns_of(described, view.snapshot.columns if view else {}, root.source.columns),
        batch=batch,
        counts={
            "new": len(difference.new),
            "changed": len(difference.changed),
            "vanished": len(difference.vanished),
            "rows_indexed": sum(one.entry.rows for one in described),
        },
        folders=root.source.recorded.folders,
        table=root.source.recorded.version,
        masks=masks_at(storage, spec, after, versions.content) if versions is not None else None,
    )
    with stages.stage("commit"):
        if planned.newest is not None:
            snapshot, is_committed = publish_full(storage, spec, planned.newest, changes, segment), True
        else:
            snapshot, is_committed = publish_build(storage, spec, view, changes, segment, root.list)
    return _result(planned, snapshot, described, written, spec, is_committed)


def _write(
    engine: Engine,
    storage: Storage,
    root: SourceRoot,
    spec: IndexSpec,
    segment: str,
    described: list[Described],
    stages: Stages,
) -> tuple[list[IndexFileEntry], list[Described]]:
    """Write the index files and the page maps of some source files. Returns the index files, and the source files with
    their numbers of rows and their page maps."""
    if not described:
        return [], described
    if spec.page_maps:  # before the scan, which takes longer, since a damaged page header fails the build
        made = engine.write_page_maps(storage, root, spec, segment, [one.entry for one in described], stages)
        described = [replace(one, entry=replace(one.entry, page_maps=made.get(one.entry.path))) for one in described]
    written, described = engine.write_index_files(storage, root, spec, segment, described, stages)
    return sorted(written, key=lambda file: file.path), described  # Spark's tasks end in any order


def _described(engine: Engine, planned: Plan, request: BuildRequest) -> tuple[list[Described], str]:
    """The files to index, opened, and the schema that a table declares, or that was inferred for formats whose files
    declare none."""
    files, options = planned.difference.to_index, dict(planned.options)
    declared = planned.root.source.columns
    if declared is not None:
        schema = declared
    elif not files and planned.spec is not None:
        schema = planned.spec.schema
    else:
        schema = infer_schema(engine, planned.root, planned.format, options, files, planned.spec)
    return _opened(planned, request, schema), schema


def _opened(planned: Plan, request: BuildRequest, schema: str) -> list[Described]:
    root, partitions = planned.root, bool(planned.partitions)
    options = {**planned.options, **schema_option(root.source.name, schema)}
    return describe(root, planned.format, options, partitions, planned.difference.to_index, request.columns)


def _of_all(planned: Plan) -> Plan:
    """The plan for all files of the source: a first build of some partitions takes types and buckets from all files."""
    return replace(planned, difference=replace(planned.difference, new=tuple(planned.files), changed=()))


def _result(
    planned: Plan,
    snapshot: Snapshot,
    described: Sequence[Described],
    written: Sequence[IndexFileEntry],
    spec: IndexSpec,
    is_committed: bool,
) -> BuildResult:
    difference, view = planned.difference, planned.view
    covered = len(view.covered) if view is not None else 0
    maps = [one.entry.page_maps for one in described if one.entry.page_maps is not None]
    return BuildResult(
        snapshot=snapshot.number,
        committed=is_committed,
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
        seconds=0.0,
        skipped_files=covered - len(difference.changed) - len(difference.vanished),
        empty_files=sum(not one.entry.rows for one in described),
        mapped_files=len(maps),
        page_map_bytes=sum(one.length for one in maps),
        flat=spec.flat,
        ragged_rows=sum(one.entry.ragged for one in described),
    )
