"""The plan of a scan: which live files of a snapshot a filter needs, by the index, the partitions and the statistics.

An index names the files that may hold the rows of a key. It is asked where the filter gives values for every column of
its key; a file that it does not cover is always planned. So an index that is behind the table costs time, and never a
row. Every plan is of one snapshot, and a large one is cut into ranges of its live files: each range can be planned at
any time, by any worker, with whatever index there is then."""

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import msgspec
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from gnomon.service.catalog.filters import Alternative, Filter, InvalidPlan, alternatives, both, narrowed, parse
from gnomon.service.catalog.pruning import PartitionedFilter, Statistics, may_match
from gnomon.service.catalog.tasks import PartitionJson, key_column_of, key_value, tasks_json
from gnomon.shadow import OpenIndex
from gnomon.shadow.lookup import MatchStats
from gnomon.shadow.metadata import LakeTableSource, View
from gnomon.shadow.storage import ByteCache, storage_at
from gnomon.shadow.tables.iceberg_files import (
    ContentFile,
    Deletes,
    LiveFiles,
    Manifest,
    ManifestReader,
    Paths,
    StorageFileIO,
    column_ids,
)

MOST_TASKS = 1000  # of one answer; more files come in further ranges
MOST_FILTER_BYTES = 16 << 20  # of the filters that one answer repeats for its files
MOST_TOKEN_BYTES = 64 << 20  # of the request in a token
MOST_KEYS = 100_000  # that an index is asked for by one plan
ANY: Alternative = {}
ICEBERG = "iceberg:"
FULL = frozenset({"filter", "keys"})  # reasons in a filter why an index is not asked; others are of the index


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A request for a plan, as the protocol has it."""

    snapshot_id: int | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    select: list[str] | None = None
    filter: Any = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    stats_fields: list[str] | None = None
    min_rows_requested: int | None = None


class PlanTask(msgspec.Struct, frozen=True):
    """A range of the live files of a snapshot that is still to be planned: places `begin` to `end`. `schema_id` is the
    schema of the plan's filter."""

    request: PlanRequest
    begin: int
    end: int
    schema_id: int

    def token(self) -> str:
        return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(self))).decode()

    @classmethod
    def of_token(cls, token: str) -> "PlanTask":
        """InvalidPlan for a text that is no token."""
        unpacker = zlib.decompressobj()
        try:
            packed = base64.urlsafe_b64decode(token)
            return msgspec.json.decode(unpacker.decompress(packed, MOST_TOKEN_BYTES), type=cls)
        except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError):
            raise InvalidPlan("plan-task: not a token that this catalog gave", found=token[:40]) from None


@dataclass
class Plan:
    """A plan, or a range of one. `body` is its answer; `live` and `planned` count files; `indexes` names the indexes
    that were asked, and `unused` says of others why they were not: in a word, and in full."""

    body: dict[str, Any]
    live: int
    planned: int
    indexes: list[str] = field(default_factory=list)
    unused: dict[str, tuple[str, str]] = field(default_factory=dict)


class TableIndex(NamedTuple):
    """An index that may be of a table, by its name."""

    name: str
    opened: OpenIndex


# Files of a manifest by their places, each with the values that matching rows in it may have, by field id; a field that
# is not named may have any value.
Chosen = Mapping[int, Alternative]


class Planner:
    """Plans scans of Iceberg tables. `cache_bytes` bounds the memory for their manifests."""

    def __init__(self, cache_bytes: int) -> None:
        # Snapshots share their manifests, so each cache may hold what the other one does.
        self._reader = ManifestReader(cache_bytes // 2, StorageFileIO())
        self._live: ByteCache[LiveFiles] = ByteCache(cache_bytes // 2)

    def plan(
        self,
        table: TableMetadata,
        name: str,
        request: PlanRequest,
        indexes: Sequence[TableIndex],
        task: PlanTask | None = None,
        nulls: bool = True,
    ) -> Plan:
        """The plan of a request, or of a range of it; `nulls` as in `PartitionJson`. InvalidPlan for a request
        that the protocol or the table does not allow; errors as in `ManifestReader.live_files`."""
        snapshot = _snapshot(table, request)
        schema = _schema(table, request, snapshot, task)
        found = parse(request.filter, schema, request.case_sensitive)
        if snapshot is None:
            return Plan(_completed([], [], []), 0, 0)
        specs = {spec.spec_id: spec for spec in table.partition_specs}
        incremental = request.start_snapshot_id is not None
        live = self._appended(table, request, specs, name) if incremental else self._live_files(snapshot, specs, name)
        plan = Plan({}, live.count, 0)
        chosen = None if incremental else self._chosen(table, schema, found, live, snapshot, indexes, plan)
        candidates = _in_order(live, chosen)
        begin, end = (0, live.count) if task is None else (task.begin, task.end)
        if task is not None:
            candidates = [one for one in candidates if begin <= one[0] < end]
            plan.live = 0  # the first range has counted them
        filter_bytes = len(msgspec.json.encode(request.filter)) if found is not True else 1
        most_whole = MOST_FILTER_BYTES // filter_bytes
        files, residuals, done = _pruned(found, candidates[:MOST_TASKS], specs, most_whole)
        # Each token has the whole filter. Where that is large, the rest is one range, to be cut when it is asked for.
        most = MOST_TASKS if len(candidates) < MOST_TASKS * most_whole else len(candidates)
        cuts = [candidates[at][0] for at in range(done, len(candidates), most or 1)]
        pinned = msgspec.structs.replace(request, snapshot_id=None if incremental else snapshot.snapshot_id)
        ranges = zip(cuts, [*cuts[1:], end], strict=True) if cuts else ()
        tasks = [PlanTask(pinned, *one, schema.schema_id).token() for one in ranges]
        stats = None if request.stats_fields is None else _field_ids(schema, request)
        shown = tasks_json(
            files, residuals, live.deletes, PartitionJson(table, nulls), stats, request.filter is not None
        )
        plan.body, plan.planned = _completed(*shown, tasks), len(files)
        return plan

    def _live_files(self, snapshot: Snapshot, specs: Mapping[int, PartitionSpec], name: str) -> LiveFiles:
        where = snapshot.manifest_list
        with self._live.use(where, lambda: self._reader.live_files(where, specs, name)) as live:
            return live

    def _appended(
        self, table: TableMetadata, request: PlanRequest, specs: Mapping[int, PartitionSpec], name: str
    ) -> LiveFiles:
        """The files that the appends after one snapshot, up to another, have added."""
        start, at = request.start_snapshot_id, request.end_snapshot_id
        by_id = {one.snapshot_id: one for one in table.snapshots}
        between: list[Snapshot] = []
        while at is not None and at != start and at in by_id:
            between.append(by_id[at])
            at = by_id[at].parent_snapshot_id
        if at != start:
            raise InvalidPlan(
                "start-snapshot-id", expected=f"an ancestor of snapshot {request.end_snapshot_id}", found=str(start)
            )
        manifests = []
        for one in reversed([one for one in between if one.summary and one.summary.operation is Operation.APPEND]):
            for record in self._reader.records(one.manifest_list, name):
                if not record.get("content") and record.get("added_snapshot_id") == one.snapshot_id:
                    files = self._reader.read(record, specs, name).files
                    manifests.append(
                        Manifest(file for file in files if file.is_added and file.snapshot == one.snapshot_id)
                    )
        return LiveFiles(manifests, Deletes([], specs))

    def _chosen(
        self,
        table: TableMetadata,
        schema: Schema,
        found: Filter,
        live: LiveFiles,
        snapshot: Snapshot,
        indexes: Sequence[TableIndex],
        plan: Plan,
    ) -> list[Chosen] | None:
        """The files of each manifest that may match by the indexes; None for all files."""
        chosen: list[Chosen] | None = None
        asked = alternatives(found)
        for one in indexes:
            try:
                here = _by_index(one, table, schema, asked, live, snapshot)
            except _Unused as unused:
                plan.unused[one.name] = unused.args[0], unused.args[1]
                continue
            except Exception as error:  # noqa: BLE001 whatever it is: all files are planned, and it is told
                plan.unused[one.name] = "error", f"{type(error).__name__}: {error}"
                continue
            plan.indexes.append(one.name)
            chosen = here if chosen is None else [_both(*pair) for pair in zip(chosen, here, strict=True)]
        return chosen


def _snapshot(table: TableMetadata, request: PlanRequest) -> Snapshot | None:
    ends = [one for one in (request.start_snapshot_id, request.end_snapshot_id) if one is not None]
    if len(ends) == 1 or (ends and request.snapshot_id is not None):
        raise InvalidPlan("expected snapshot-id, or both start-snapshot-id and end-snapshot-id")
    number = request.snapshot_id if request.end_snapshot_id is None else request.end_snapshot_id
    if number is None:
        return table.current_snapshot()
    found = table.snapshot_by_id(number)
    if found is None:
        raise InvalidPlan(f"the table has no snapshot {number}; it may have expired")
    return found


def _schema(table: TableMetadata, request: PlanRequest, snapshot: Snapshot | None, task: PlanTask | None) -> Schema:
    number: int | None = table.current_schema_id
    if task is not None:
        number = task.schema_id
    elif request.use_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
        number = snapshot.schema_id
    found = table.schema_by_id(number) if number is not None else None
    if found is None:
        raise InvalidPlan(f"the table has no schema {number} any more; plan the scan again")
    return found


def _field_ids(schema: Schema, request: PlanRequest) -> set[int]:
    """The ids of the columns whose statistics were asked for. InvalidPlan for a column that the table lacks."""
    numbers = set()
    for name in request.stats_fields or ():
        try:
            numbers.add(schema.find_field(name, request.case_sensitive).field_id)
        except ValueError:
            raise InvalidPlan(f"stats-fields: the table has no column {name}") from None
    return numbers


# -- by an index -------------------------------------------------------------------------------------------------------


def is_of(index: OpenIndex, table: TableMetadata) -> bool:
    """Whether an index is of this table."""
    known = index.view.snapshot.table
    is_iceberg = isinstance(index.spec.source, LakeTableSource) and index.spec.source.of.startswith(ICEBERG)
    return is_iceberg and known is not None and known.uuid == str(table.table_uuid)


class _Unused(Exception):
    """An index says nothing about a filter: the reason in a word, and in full."""


def _by_index(
    of: TableIndex,
    table: TableMetadata,
    schema: Schema,
    asked: Sequence[Alternative],
    live: LiveFiles,
    snapshot: Snapshot,
) -> list[Chosen]:
    """The files of each manifest that the index does not cover, and those in which it has any of the keys. _Unused
    where it says nothing about the filter."""
    here = of.opened.here()
    view, spec = here.view, here.spec
    known = view.snapshot.table
    if known is None or not is_of(here, table):
        raise _Unused("table", f"it is of another table than {table.location} with id {table.table_uuid}")
    ids = column_ids(spec.schema, tuple(column.place for column in spec.keys))
    numbers = [key_column_of(column, ids, table, schema) for column in spec.keys]
    named = [number for number in numbers if number is not None]
    if len(named) < len(numbers):
        lost = next(column.name for column, number in zip(spec.keys, numbers, strict=True) if number is None)
        raise _Unused("column", f"column {lost} of its key has another type, or another column has its name")
    keys = _keys(asked, named)
    kinds = [schema.find_type(number) for number in named]
    stored = [list(map(key_value, kinds, key)) for key in keys]
    masked = known.version == str(snapshot.snapshot_id)  # else rows may live that it knows as deleted
    files = {
        path: {number: frozenset(keys[at][i] for at in places) for i, number in enumerate(named)}
        for path, places in (here.source_files_of(stored, MatchStats(), masked) if keys else {}).items()
    }
    return [_places(manifest, files, view, table) for manifest in live.manifests]


def _keys(asked: Sequence[Alternative], numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    """The keys that a matching row may have, from the values of the columns with these ids."""
    if not all(set(numbers) <= set(one) for one in asked):
        raise _Unused("filter", "the filter does not give values for every column of its key")
    if sum(math.prod(len(one[number]) for number in numbers) for one in asked) > MOST_KEYS:
        raise _Unused("keys", f"the filter gives more than {MOST_KEYS:,} keys")
    return list(dict.fromkeys(key for one in asked for key in product(*(one[number] for number in numbers))))


def _places(manifest: Manifest, files: Mapping[str, Alternative], view: View, table: TableMetadata) -> Chosen:
    root = view.spec.source.location
    by_path = manifest.by_path_below(root, _paths(root, table.location))

    def uncovered() -> frozenset[int]:
        covered = view.covered
        return frozenset(
            place
            for path, places in by_path.items()
            for place in places
            if path not in covered or covered[path].size != manifest.files[place].size
        )

    here = manifest.remembered((root, view.snapshot.number, view.snapshot.commit_id), uncovered)
    named = by_path.keys() & files.keys() if len(files) > len(by_path) else [path for path in files if path in by_path]
    return {place: files[path] for path in named for place in by_path[path]} | dict.fromkeys(here, ANY)


def _both(one: Chosen, other: Chosen) -> Chosen:
    """The files that two indexes choose."""
    pairs = ((place, both(one[place], other[place])) for place in one.keys() & other.keys())
    return {place: values for place, values in pairs if values is not None}


def _paths(root: str, location: str) -> Paths:
    """The paths of files as an index has them. A table whose root moved has no shorter way to them."""
    return Paths(root, location if storage_at(location).root == root else "\0")


# -- candidates --------------------------------------------------------------------------------------------------------


def _in_order(live: LiveFiles, chosen: Sequence[Chosen] | None) -> list[tuple[int, ContentFile, Alternative]]:
    """The files to look at: the place of each among the live files, and the values that matching rows may have."""
    found: list[tuple[int, ContentFile, Alternative]] = []
    begin = 0
    for number, manifest in enumerate(live.manifests):
        here = dict.fromkeys(range(len(manifest.files)), ANY) if chosen is None else chosen[number]
        found.extend((begin + place, manifest.files[place], here[place]) for place in sorted(here))
        begin += len(manifest.files)
    return found


def _pruned(
    found: Filter,
    candidates: Sequence[tuple[int, ContentFile, Alternative]],
    specs: Mapping[int, PartitionSpec],
    most_whole: int,
) -> tuple[list[ContentFile], list[Filter], int]:
    """The files that may hold a matching row, by partition and statistics, what is left of the filter for each, and the
    number of candidates that were looked at: it ends after `most_whole` files for which the whole filter is left, but
    not before the first."""
    filters = {number: PartitionedFilter(found, spec) for number, spec in specs.items()}
    kept: list[ContentFile] = []
    residuals: list[Filter] = []
    whole = 0
    for done, (_, file, values) in enumerate(candidates, 1):
        residual = filters[file.spec].residual(file.partition)
        if values:
            residual = narrowed(residual, values)
        if residual is not False and file.records and may_match(residual, Statistics.of(file)):
            kept.append(file)
            residuals.append(residual)
            whole += not values
            if whole >= most_whole:
                return kept, residuals, done
    return kept, residuals, len(candidates)


def _completed(deletes: list[Any], files: list[Any], tasks: list[str]) -> dict[str, Any]:
    return {"status": "completed", "plan-tasks": tasks, "delete-files": deletes, "file-scan-tasks": files}
