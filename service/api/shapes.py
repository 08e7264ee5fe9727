"""The shapes of answers: `errors.encode` writes them, and `/openapi.json` describes them. A member that is `UNSET` is
left out of the answer."""

from inspect import cleandoc
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gnomon.service.http import BatchRequest


def _is(description: str) -> Meta:
    """The description of a member."""
    return Meta(description=description)


TableVersion = Annotated[
    str, _is("only for an index of a Delta or Iceberg table: the version of the table that was read")
]
Refused = Annotated[str, _is("why the newest snapshot cannot be opened, so that an older one is served")]
CoverageError = Annotated[str, _is("why the last listing of the source failed")]


class IndexCost(msgspec.Struct):
    """The cost of the look-up of the key in the index."""

    nodes: Annotated[int, _is("number of B-Tree nodes that the look-up visited")]
    reads: Annotated[int, _is("number of reads of index files and Bloom filters")]
    bytes: int
    filter_checks: Annotated[int, _is("number of checks of a key against the Bloom filter of an index file")]
    filter_bytes: Annotated[int, _is("bytes of Bloom filters; `bytes` includes them")]
    microseconds: int


class SourceCost(msgspec.Struct):
    """The cost of reading the rows from the source."""

    files: int
    reads: Annotated[int, _is("number of reads of source files")]
    bytes: int
    page_map_reads: Annotated[int, _is("number of reads of page maps in the index; `reads` does not include them")]
    page_map_bytes: int
    microseconds: int


class Step(msgspec.Struct):
    """One step of an answer. Steps may overlap in time. Each kind of step has some members of its own. A member that a
    step does not have is left out.

    `key`: the key was parsed and its bucket was computed. `filter`: a Bloom filter was checked. `index_file`: an index
    file was opened. `node`: a node of the B-Tree was read. `source_ahead`: a source file was opened while the look-up
    was still running. `source_file`: a source file was opened and compared with its fingerprint. `page_map`: a page map
    was read. `pages`: pages of the source file were read. `decode`: the rows were decoded. `key_check`: the key of each
    row was compared with the key of the request."""

    step: str
    reads: int
    bytes: int
    cached: Annotated[bool, _is("true if the data was already in memory")]
    begin_us: Annotated[int, _is("start of the step, in microseconds since the look-up began")]
    microseconds: int
    file: Annotated[str | UnsetType, _is("path of the file that was read, relative to the index or the source")] = UNSET
    offset: Annotated[int | UnsetType, _is("offset of the first read in the file, in bytes")] = UNSET
    count: Annotated[int | UnsetType, _is("number of equal steps combined in this one, which has their sums")] = UNSET
    end_us: Annotated[int | UnsetType, _is("end of the last combined step, in microseconds like `begin_us`")] = UNSET


class ReadThrough(msgspec.Struct):
    """Files that were added to a lake table after the version that the index covers."""

    files: int
    rows: int


class Explain(msgspec.Struct, kw_only=True):
    """The cost of an answer. A batch or a page of a range has only the sums over all its keys."""

    bucket: int | UnsetType = UNSET
    index: IndexCost
    source: SourceCost
    read_through: Annotated[
        ReadThrough | UnsetType, _is("only with freshness=newest: files searched without the index")
    ] = UNSET
    steps: Annotated[list[Step] | UnsetType, _is("the steps, in the order in which they began")] = UNSET
    files: Annotated[list[str] | UnsetType, _is("the source file of each row; only in a JSON answer")] = UNSET


class RowsAnswer(msgspec.Struct):
    """All rows of one key. `count` is the number of all matching rows, even if `_limit` returns fewer."""

    key: dict[str, Any]
    count: int
    rows: list[dict[str, Any]]
    snapshot: int
    table_version: TableVersion | UnsetType = UNSET
    explain: Explain | UnsetType = UNSET


class RangeAnswer(msgspec.Struct):
    """A page of the rows of a range of keys, in key order. `count` is the number of rows in the page."""

    rows: list[dict[str, Any]]
    count: int
    snapshot: int
    table_version: TableVersion | UnsetType = UNSET
    next: Annotated[
        str | UnsetType, _is("the path and query of the next page; left out where no row follows, and never otherwise")
    ] = UNSET
    explain: Explain | UnsetType = UNSET


class Covered(msgspec.Struct):
    """How many rows and source files a snapshot covers."""

    rows: int
    source_files: int


class Asked(msgspec.Struct):
    """The part of the snapshot that the query searched, because of its `_where` option."""

    where: Annotated[dict[str, list[str]], _is("the values that the query gave for each partition column")]
    partitions: int
    rows: int


class Problem(msgspec.Struct):
    """The answer to every request that fails (RFC 9457). Each kind of failure has some of these members, and may have
    others."""

    type: Annotated[str, Meta(description="the kind of failure, a stable URN", pattern="^urn:gnomon:problem:")]
    title: str
    status: int
    detail: Annotated[str, _is("a text for people: what is wrong, where, and what to do")]
    instance: Annotated[str, _is("the path and query of the request; for a batch only the path")]
    column: Annotated[str | UnsetType, _is("the key column whose value has the wrong type")] = UNSET
    expected: Annotated[str | UnsetType, _is("the type that this column has")] = UNSET
    key: Annotated[dict[str, Any] | UnsetType, _is("the key that was not found")] = UNSET
    snapshot: Annotated[int | UnsetType, _is("the snapshot that was read")] = UNSET
    table_version: TableVersion | UnsetType = UNSET
    covered: Annotated[Covered | UnsetType, _is("how many rows and source files the snapshot covers")] = UNSET
    asked: Annotated[Asked | UnsetType, _is("the part of the snapshot that the `_where` option selected")] = UNSET
    key_number: Annotated[int | UnsetType, _is("in Arrow: the position of the key that failed, from 0")] = UNSET
    request_id: Annotated[str | UnsetType, _is("the id of the request, also in the log")] = UNSET


class BatchResult(msgspec.Struct):
    """The rows of one key of a batch, or the error of this key."""

    key: Any
    count: int | UnsetType = UNSET
    rows: list[dict[str, Any]] | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class BatchAnswer(msgspec.Struct):
    """A result for each key, in the order of the keys in the request."""

    results: list[BatchResult]
    snapshot: int
    table_version: TableVersion | UnsetType = UNSET
    explain: Explain | UnsetType = UNSET


class Liveness(msgspec.Struct):
    """The process answers."""

    alive: bool = True


class CoverageCounts(msgspec.Struct):
    """The numbers of source files that a snapshot does not cover, from the last listing of the source."""

    snapshot: int
    new: int
    changed: int
    vanished: int
    lake_table: Annotated[
        str | None,
        _is("the format of the lake table to which the source files belong; its deleted rows are answered, too"),
    ]
    newer: Annotated[str | None, _is("the newest version of the lake table, if the snapshot covers an older version")]
    age_seconds: Annotated[float, _is("seconds since the source was listed")]


class IndexReadiness(msgspec.Struct):
    """The state of one index. Members are null while the index is not open."""

    open: bool
    snapshot: int | None
    table_version: Annotated[str | None, _is("the version of the lake table that the snapshot covers")]
    rows: int | None
    source_files: int | None
    refused: Refused | None
    unreachable: Annotated[str | None, _is("why the last check for a newer snapshot failed; null if it did not fail")]
    coverage: Annotated[CoverageCounts | None, _is("null until the source has been listed")]
    coverage_error: CoverageError | None
    saturated_seconds: Annotated[float, _is("for how many seconds the service has refused all requests for this index")]


class Readiness(msgspec.Struct):
    """Whether this process can answer requests, and the state of each index by its name. If the service needs tokens, a
    caller without a token gets only `ready`."""

    ready: bool
    indexes: Annotated[dict[str, IndexReadiness] | UnsetType, _is("each index that the token may read")] = UNSET
    compiled: Annotated[bool | UnsetType, _is("true if this process runs the compiled inner loops")] = UNSET
    tokens: Annotated[str | UnsetType, _is("why the tokens file cannot be read now")] = UNSET


class ListedIndex(msgspec.Struct):
    """An index of the service. If it is not open, only its names and its URL are known."""

    name: str
    default: Annotated[bool, _is("true if `/rows` reads this index")]
    url: Annotated[str, _is("the URL of the index; its rows have this URL with `/rows` added")]
    open: bool
    snapshot: int | None
    rows: int | None
    keys: list[str] | None


class IndexList(msgspec.Struct):
    """The indexes of the service; the default index comes first."""

    indexes: list[ListedIndex]


class KeyColumn(msgspec.Struct):
    """A column of the key, and the type of its values."""

    name: str
    type: str
    partition: Annotated[bool, _is("true if the column is a partition column; index entries do not store its value")]


class RowColumn(msgspec.Struct):
    """A column of the rows. Its type is its Arrow type in the source; a partition column has a type of Spark."""

    name: str
    type: str


class Partition(msgspec.Struct):
    """A partition of the source. `index_bytes` is null in a flat index, because there an index file belongs to several
    partitions."""

    partition: str
    rows: int
    source_files: int
    index_bytes: int | None


class ServedSnapshot(msgspec.Struct):
    """The snapshot that the service reads."""

    number: int
    committed_at: str
    operation: str
    rows: int
    table_version: TableVersion | None
    age_seconds: float


class KeptSnapshot(msgspec.Struct):
    """A snapshot that the `_snapshot` option can name. If it is damaged, only its number is known."""

    snapshot: int
    committed_at: str | None = None
    operation: str | None = None
    rows: int | None = None
    table_version: TableVersion | None = None


class Limits(msgspec.Struct):
    """The limits of the service for requests and answers."""

    max_key_bytes: int
    max_batch_keys: int
    max_rows: int
    max_answer_bytes: int


class IndexDescription(msgspec.Struct):
    """The description of one index."""

    name: str
    default: bool
    open: bool
    format: Annotated[str, _is("the format of the source files; `values` for a key-value folder, which has none")]
    keys: list[KeyColumn]
    columns: list[RowColumn]
    included: Annotated[list[str], _is("columns whose values are stored in the index, together with the keys")]
    partition_columns: list[str]
    flat: Annotated[bool, _is("true if all partitions share one set of buckets")]
    buckets: int
    source_files: int
    segments: int
    index_files: int
    index_bytes: int
    filter_bytes: Annotated[int, _is("bytes of Bloom filters; `index_bytes` does not include them")]
    partitions: Annotated[list[Partition], _is("the partitions by name; of more than 400 the last 400")]
    partitions_total: int
    bucket_rows: Annotated[list[int], _is("number of entries in each bucket, with dead entries")]
    bucket_bytes: Annotated[list[int], _is("bytes of the index files in each bucket")]
    snapshot: ServedSnapshot
    refused: Refused | None
    coverage: Annotated[CoverageCounts | None, _is("null until the source has been listed")]
    coverage_error: CoverageError | None
    snapshots: Annotated[list[KeptSnapshot], _is("the newest 200 snapshots, from the oldest to the newest")]
    limits: Limits


TOP = (RowsAnswer, RangeAnswer, BatchAnswer, Problem, Liveness, Readiness, IndexList, IndexDescription, BatchRequest)


def schemas() -> dict[str, Any]:
    """The JSON schema of each shape, by its name, as `/openapi.json` has them."""
    _, found = msgspec.json.schema_components(TOP, ref_template="#/components/schemas/{name}")
    return {name: schema | {"description": cleandoc(schema["description"])} for name, schema in found.items()}
