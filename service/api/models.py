"""The shapes of requests and answers, for OpenAPI. Answers are written as bytes: nothing passes through these."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class IndexCost(BaseModel):
    """What the look-up in the index cost."""

    nodes: int = Field(description="B-Tree nodes visited")
    reads: int = Field(description="of index files and Bloom filters")
    bytes: int
    filter_checks: int = Field(description="keys checked against the Bloom filter of an index file")
    filter_bytes: int = Field(description="bytes of Bloom filters, among `bytes`")
    microseconds: int


class SourceCost(BaseModel):
    """What reading the rows from the source cost."""

    files: int
    reads: int = Field(description="of source files")
    bytes: int
    page_map_reads: int = Field(description="of page maps recorded in the index, beside `reads`")
    page_map_bytes: int
    microseconds: int


class Step(BaseModel):
    """One step of an answer; steps that go side by side overlap. Each kind has members of its own, too. Members that a
    step does not have are left out.

    `key`: parsed, its bucket found; `filter`: a Bloom filter asked; `index_file`: opened; `node`: of the B-Tree;
    `source_ahead`: opened while the index was asked; `source_file`: opened and compared; `page_map`; `pages`: read;
    `decode`; `key_check`: the rows hold the key."""

    model_config = ConfigDict(extra="allow")

    step: str
    file: str = Field(default="", description="that was read, relative to the index or the source")
    offset: int = Field(default=0, description="in bytes, where the first read began")
    reads: int
    bytes: int
    cached: bool = Field(description="whether it was in memory")
    begin_us: int = Field(description="microseconds from the begin of the look-up")
    microseconds: int
    count: int = Field(
        default=1, description="the number of equal steps that are shown as this one; their numbers are summed"
    )
    end_us: int = Field(default=0, description="of several steps shown as one: when the last of them ended")


class ReadThrough(BaseModel):
    """The files that a lake table added since the version that the index covers."""

    files: int
    rows: int


class Explain(BaseModel):
    """The cost of an answer. For a batch, only the sums over all keys."""

    bucket: int | None = None
    index: IndexCost
    source: SourceCost
    steps: list[Step] | None = Field(default=None, description="in the order of their begin")
    files: list[str] | None = Field(default=None, description="in JSON: the source file of each row")
    read_through: ReadThrough | None = Field(
        default=None, description="with the setting freshness=newest: what the index does not cover, read without it"
    )


TABLE_VERSION = Field(
    default=None, description="of the index of a Delta or Iceberg table: the version of the table that was asked"
)


class RowsAnswer(BaseModel):
    """All rows of one key. `count` is of all matches, also under `_limit`."""

    key: dict[str, Any]
    count: int
    rows: list[dict[str, Any]]
    snapshot: int
    table_version: str | None = TABLE_VERSION
    explain: Explain | None = None


class Covered(BaseModel):
    """What a snapshot covers."""

    rows: int
    source_files: int


class Asked(BaseModel):
    """The part of it that was asked under `_where=`."""

    where: dict[str, list[str]] = Field(description="the values of each partition column")
    partitions: int
    rows: int


class Problem(BaseModel):
    """Every failure (RFC 9457). Members that are not of its kind are left out; others may follow."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="urn:gnomon:problem:...: stable, to be compared", pattern="^urn:gnomon:problem:")
    title: str
    status: int
    detail: str = Field(description="what is wrong, where, and what to do: for people")
    instance: str = Field(description="the path and query that were asked for; in a batch the path alone")
    column: str = Field(default="", description="of a key of the wrong type: its column")
    expected: str = Field(default="", description="of a key of the wrong type: the type")
    key: dict[str, Any] = Field(default={}, description="the key that was not found")
    snapshot: int = Field(default=0, description="the snapshot that was asked")
    table_version: str | None = TABLE_VERSION
    covered: Covered = Field(default=Covered(rows=0, source_files=0), description="what that snapshot covers")
    asked: Asked | None = Field(default=None, description="which part of it was asked, where `_where=` narrowed it")
    key_number: int = Field(default=0, description="of a batch in Arrow: the place of the key that fails, from 0")
    request_id: str = Field(default="", description="under which the log says more")


class BatchRequest(BaseModel):
    """Each key is a value (one-column keys), a list in key order, or an object by column name; values may be null."""

    model_config = ConfigDict(extra="forbid")

    keys: list[Any]
    columns: list[str] | None = None


class BatchResult(BaseModel):
    """The rows of one key of a batch, or why they cannot be had."""

    key: Any
    count: int | None = None
    rows: list[dict[str, Any]] | None = None
    error: Problem | None = None


class BatchAnswer(BaseModel):
    """A result for each key, in the order asked."""

    results: list[BatchResult]
    snapshot: int
    table_version: str | None = TABLE_VERSION
    explain: Explain | None = None


class Liveness(BaseModel):
    """The process answers."""

    alive: bool


class CoverageCounts(BaseModel):
    """Source files that a snapshot does not cover, as they were when they were listed."""

    snapshot: int
    new: int
    changed: int
    vanished: int
    lake_table: str | None = Field(
        description="the table format that the source's files belong to, as `Delta Lake table`: rows that the table "
        "deleted or replaced are answered"
    )
    newer: str | None = Field(
        description="the newest version of the lake table, where the snapshot covers an older one"
    )
    age_seconds: float


class IndexReadiness(BaseModel):
    """What is served of an index; null while it is not open."""

    open: bool
    snapshot: int | None
    table_version: str | None = Field(description="the version of the lake table that the snapshot covers")
    rows: int | None
    source_files: int | None
    refused: str | None = Field(description="why the newest snapshot is not the one served")
    unreachable: str | None = Field(description="why the last look for a newer snapshot failed")
    coverage: CoverageCounts | None = Field(description="null until the source was listed")
    coverage_error: str | None = Field(description="why the source could not be listed last")
    saturated_seconds: float = Field(description="for how long all requests of the index have been refused")


class Readiness(BaseModel):
    """Whether requests should come here, and what is served, by the name of the index. Without a token, where one is
    needed, `ready` alone."""

    ready: bool
    indexes: dict[str, IndexReadiness] | None = Field(default=None, description="those that the token may ask")
    compiled: bool | None = Field(default=None, description="whether this process runs the compiled inner loops")
    tokens: str | None = Field(default=None, description="why the tokens file cannot be read, while it cannot")


class ListedIndex(BaseModel):
    """An index of the service. Of one that cannot be opened there is its name alone."""

    name: str
    default: bool = Field(description="whether `/rows` asks it")
    url: str = Field(description="where it is described; its rows are below, at `/rows`")
    open: bool
    snapshot: int | None
    rows: int | None
    keys: list[str] | None


class IndexList(BaseModel):
    """The indexes of the service, the default first."""

    indexes: list[ListedIndex]


class KeyColumn(BaseModel):
    """A column of the key, with the type that is expected of its values."""

    name: str
    type: str
    partition: bool = Field(description="whether it names a partition, and is not stored with the entries")


class RowColumn(BaseModel):
    """A column of the rows, with its type in the source: an Arrow type, or of a partition column one of Spark's."""

    name: str
    type: str


class ServedSnapshot(BaseModel):
    """The snapshot that is served."""

    number: int
    committed_at: str
    operation: str
    rows: int
    table_version: str | None = TABLE_VERSION
    age_seconds: float


class Partition(BaseModel):
    """A partition of the source. In a flat index no index file is of one partition: `index_bytes` is null."""

    partition: str
    rows: int
    source_files: int
    index_bytes: int | None


class KeptSnapshot(BaseModel):
    """A snapshot that may be asked for by its number; of a damaged one the number alone is known."""

    snapshot: int
    committed_at: str | None
    operation: str | None
    rows: int | None
    table_version: str | None = TABLE_VERSION


class Limits(BaseModel):
    """What the service takes and gives at most."""

    max_key_bytes: int
    max_batch_keys: int
    max_rows: int
    max_answer_bytes: int


class IndexDescription(BaseModel):
    """The description of one index."""

    name: str
    default: bool
    open: bool
    format: str = Field(description="of the source's files; `values` for a key-value folder, which has no source")
    keys: list[KeyColumn]
    columns: list[RowColumn]
    included: list[str] = Field(description="columns that are stored with the entries")
    partition_columns: list[str]
    flat: bool = Field(description="whether there is one set of buckets over all partitions")
    buckets: int
    snapshot: ServedSnapshot
    refused: str | None = Field(description="why the newest snapshot is not the one that is served")
    source_files: int
    segments: int
    index_files: int
    index_bytes: int
    filter_bytes: int = Field(description="of Bloom filters, beside `index_bytes`")
    coverage: CoverageCounts | None = Field(description="null until the source was listed")
    coverage_error: str | None = Field(description="why the source could not be listed")
    partitions: list[Partition] = Field(description="the last 400 by name")
    partitions_total: int
    bucket_rows: list[int] = Field(description="entries of each bucket, dead ones included")
    bucket_bytes: list[int] = Field(description="bytes of the index files of each bucket")
    snapshots: list[KeptSnapshot] = Field(description="the newest 200, oldest first")
    limits: Limits
