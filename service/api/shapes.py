"""The shapes of answers: `errors.encode` writes them, and `/openapi.json` describes them. A member that is `UNSET` is
left out of the answer."""

from inspect import cleandoc
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gnomon.service.http import BatchRequest

TableVersion = Annotated[
    str, Meta(description="for an index of a Delta or Iceberg table: the version of the table that was read")
]


class IndexCost(msgspec.Struct):
    """The cost of the look-up in the index."""

    nodes: Annotated[int, Meta(description="B-Tree nodes visited")]
    reads: Annotated[int, Meta(description="reads of index files and Bloom filters")]
    bytes: int
    filter_checks: Annotated[int, Meta(description="keys checked against the Bloom filter of an index file")]
    filter_bytes: Annotated[int, Meta(description="bytes of Bloom filters, included in `bytes`")]
    microseconds: int


class SourceCost(msgspec.Struct):
    """The cost of reading the rows from the source."""

    files: int
    reads: Annotated[int, Meta(description="reads of source files")]
    bytes: int
    page_map_reads: Annotated[int, Meta(description="reads of page maps in the index, not included in `reads`")]
    page_map_bytes: int
    microseconds: int


class Step(msgspec.Struct):
    """One step of an answer. Steps that run at the same time overlap. Each kind has more members of its own. Members
    that a step does not have are left out.

    `key`: parsed, its bucket found; `filter`: a Bloom filter asked; `index_file`: opened; `node`: of the B-Tree;
    `source_ahead`: opened while the index was asked; `source_file`: opened and compared; `page_map`; `pages`: read;
    `decode`; `key_check`: the rows hold the key."""

    step: str
    reads: int
    bytes: int
    cached: Annotated[bool, Meta(description="whether it was in memory")]
    begin_us: Annotated[int, Meta(description="microseconds from the begin of the look-up")]
    microseconds: int
    file: (
        Annotated[str, Meta(description="the file that was read, relative to the index or the source")] | UnsetType
    ) = UNSET
    offset: Annotated[int, Meta(description="where the first read began, in bytes")] | UnsetType = UNSET
    count: (
        Annotated[
            int, Meta(description="the number of equal steps that are shown as this one; their numbers are summed")
        ]
        | UnsetType
    ) = UNSET
    end_us: (
        Annotated[int, Meta(description="of several steps shown as one: when the last of them ended")] | UnsetType
    ) = UNSET


class ReadThrough(msgspec.Struct):
    """The files that a lake table added since the version that the index covers."""

    files: int
    rows: int


class Explain(msgspec.Struct, kw_only=True):
    """The cost of an answer. For a batch, only the sums over all keys."""

    bucket: int | UnsetType = UNSET
    index: IndexCost
    source: SourceCost
    read_through: (
        Annotated[
            ReadThrough,
            Meta(description="with the setting freshness=newest: files that the index does not cover, read without it"),
        ]
        | UnsetType
    ) = UNSET
    steps: Annotated[list[Step], Meta(description="in the order in which they began")] | UnsetType = UNSET
    files: Annotated[list[str], Meta(description="the source file of each row; only in JSON")] | UnsetType = UNSET


class RowsAnswer(msgspec.Struct):
    """All rows of one key. `count` is the number of all matches, also with `_limit`."""

    key: dict[str, Any]
    count: int
    rows: list[dict[str, Any]]
    snapshot: int
    table_version: TableVersion | UnsetType = UNSET
    explain: Explain | UnsetType = UNSET


class Covered(msgspec.Struct):
    """The coverage of a snapshot."""

    rows: int
    source_files: int


class Asked(msgspec.Struct):
    """The part of the snapshot to which `_where=` limited the query."""

    where: Annotated[dict[str, list[str]], Meta(description="the values of each partition column")]
    partitions: int
    rows: int


class Problem(msgspec.Struct):
    """Every failure (RFC 9457). Members that do not belong to its kind are left out; a problem may have others."""

    type: Annotated[
        str, Meta(description="urn:gnomon:problem:...: stable, for programs", pattern="^urn:gnomon:problem:")
    ]
    title: str
    status: int
    detail: Annotated[str, Meta(description="what is wrong, where, and what to do: for people")]
    instance: Annotated[str, Meta(description="the path and query of the request; in a batch only the path")]
    column: Annotated[str, Meta(description="for a key of the wrong type: its column")] | UnsetType = UNSET
    expected: Annotated[str, Meta(description="for a key of the wrong type: the type")] | UnsetType = UNSET
    key: Annotated[dict[str, Any], Meta(description="the key that was not found")] | UnsetType = UNSET
    snapshot: Annotated[int, Meta(description="the snapshot that was read")] | UnsetType = UNSET
    table_version: TableVersion | UnsetType = UNSET
    covered: Annotated[Covered, Meta(description="what this snapshot covers")] | UnsetType = UNSET
    asked: Annotated[Asked, Meta(description="the part that `_where=` selected")] | UnsetType = UNSET
    key_number: (
        Annotated[int, Meta(description="for a batch in Arrow: the place of the key that fails, from 0")] | UnsetType
    ) = UNSET
    request_id: Annotated[str, Meta(description="find more in the log with this id")] | UnsetType = UNSET


class BatchResult(msgspec.Struct):
    """The rows of one key of a batch, or its error."""

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
    """Source files that a snapshot does not cover, when the source was last listed."""

    snapshot: int
    new: int
    changed: int
    vanished: int
    lake_table: Annotated[
        str | None,
        Meta(
            description="the format of the lake table that the source's files belong to, as `Delta Lake table`: then "
            "rows that the table deleted or replaced are answered, too"
        ),
    ]
    newer: Annotated[
        str | None, Meta(description="the newest version of the lake table, if the snapshot covers an older one")
    ]
    age_seconds: Annotated[float, Meta(description="since the source was listed")]


class IndexReadiness(msgspec.Struct):
    """The state of one index. Members are null while the index is not open."""

    open: bool
    snapshot: int | None
    table_version: Annotated[str | None, Meta(description="the version of the lake table that the snapshot covers")]
    rows: int | None
    source_files: int | None
    refused: Annotated[str | None, Meta(description="why an older snapshot than the newest is served")]
    unreachable: Annotated[str | None, Meta(description="why the last check for a newer snapshot failed")]
    coverage: Annotated[CoverageCounts | None, Meta(description="null until the source was listed")]
    coverage_error: Annotated[str | None, Meta(description="why the last listing of the source failed")]
    saturated_seconds: Annotated[float, Meta(description="for how long all requests of the index have been refused")]


class Readiness(msgspec.Struct):
    """Whether this process can answer requests, and the state of each index by its name. A caller without a token gets
    only `ready`, if tokens are needed."""

    ready: bool
    indexes: Annotated[dict[str, IndexReadiness], Meta(description="the indexes that the token allows")] | UnsetType = (
        UNSET
    )
    compiled: Annotated[bool, Meta(description="whether this process runs the compiled inner loops")] | UnsetType = (
        UNSET
    )
    tokens: Annotated[str, Meta(description="why the tokens file cannot be read at present")] | UnsetType = UNSET


class ListedIndex(msgspec.Struct):
    """An index of the service. If it is not open, only its names and its URL are known."""

    name: str
    default: Annotated[bool, Meta(description="whether `/rows` reads this index")]
    url: Annotated[str, Meta(description="the description of the index; its rows are below, at `/rows`")]
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
    partition: Annotated[bool, Meta(description="whether it is a partition column, which entries do not store")]


class RowColumn(msgspec.Struct):
    """A column of the rows, with its type in the source: an Arrow type; for a partition column a type of Spark."""

    name: str
    type: str


class Partition(msgspec.Struct):
    """A partition of the source. In a flat index, index files belong to several partitions: `index_bytes` is null."""

    partition: str
    rows: int
    source_files: int
    index_bytes: int | None


class ServedSnapshot(msgspec.Struct):
    """The snapshot that is served."""

    number: int
    committed_at: str
    operation: str
    rows: int
    table_version: TableVersion | None
    age_seconds: float


class KeptSnapshot(msgspec.Struct):
    """A snapshot that `_snapshot=` may name. Of a damaged one only the number is known."""

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
    format: Annotated[
        str, Meta(description="the format of the source's files; `values` for a key-value folder, which has no source")
    ]
    keys: list[KeyColumn]
    columns: list[RowColumn]
    included: Annotated[list[str], Meta(description="columns that are stored with the entries")]
    partition_columns: list[str]
    flat: Annotated[bool, Meta(description="whether all partitions share one set of buckets")]
    buckets: int
    source_files: int
    segments: int
    index_files: int
    index_bytes: int
    filter_bytes: Annotated[int, Meta(description="bytes of Bloom filters, not included in `index_bytes`")]
    partitions: Annotated[list[Partition], Meta(description="the last 400 by name")]
    partitions_total: int
    bucket_rows: Annotated[list[int], Meta(description="entries of each bucket, including dead ones")]
    bucket_bytes: Annotated[list[int], Meta(description="bytes of the index files of each bucket")]
    snapshot: ServedSnapshot
    refused: Annotated[str | None, Meta(description="why an older snapshot than the newest is served")]
    coverage: Annotated[CoverageCounts | None, Meta(description="null until the source was listed")]
    coverage_error: Annotated[str | None, Meta(description="why the last listing of the source failed")]
    snapshots: Annotated[list[KeptSnapshot], Meta(description="the newest 200, oldest first")]
    limits: Limits


TOP = (RowsAnswer, BatchAnswer, Problem, Liveness, Readiness, IndexList, IndexDescription, BatchRequest)


def schemas() -> dict[str, Any]:
    """The JSON schema of each shape, by its name, as `/openapi.json` has them."""
    _, found = msgspec.json.schema_components(TOP, ref_template="#/components/schemas/{name}")
    return {name: schema | {"description": cleandoc(schema["description"])} for name, schema in found.items()}
