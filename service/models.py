"""The shapes of requests and answers, for OpenAPI. Answers are written as bytes: nothing passes through these."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class IndexCost(BaseModel):
    """What the look-up in the index cost."""

    nodes: int = Field(description="B-Tree nodes visited")
    reads: int = Field(description="of index files and key filters")
    bytes: int
    filter_checks: int = Field(description="keys checked against the filter of an index file")
    filter_bytes: int = Field(description="bytes of key filters, among `bytes`")
    microseconds: int


class SourceCost(BaseModel):
    """What reading the rows from the source cost."""

    files: int
    reads: int = Field(description="of source files")
    bytes: int
    page_map_reads: int = Field(description="of page maps recorded in the index, beside `reads`")
    page_map_bytes: int
    microseconds: int


class Explain(BaseModel):
    """What an answer cost; the bucket for a single key only."""

    bucket: int | None = None
    index: IndexCost
    source: SourceCost


class RowsAnswer(BaseModel):
    """All rows of one key. `count` is of all matches, also under `limit`."""

    key: dict[str, Any]
    count: int
    rows: list[dict[str, Any]]
    snapshot: int
    explain: Explain | None = None


class Problem(BaseModel):
    """Every failure (RFC 9457). Some carry more: `column`, `expected`, `key`, `snapshot`, `covered`, `request_id`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="urn:gnomon:problem:...: stable, to be compared")
    title: str
    status: int
    detail: str
    instance: str = Field(description="the path and query that were asked for")


class BatchRequest(BaseModel):
    """Each key is a value (one-column keys), a list in key order, or an object by column name; values may be null."""

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
    age_seconds: float


class IndexReadiness(BaseModel):
    """What is served of an index; null while it is not open."""

    open: bool
    snapshot: int | None
    rows: int | None
    source_files: int | None
    refused: str | None = Field(description="why the newest snapshot is not the one served")
    unreachable: str | None = Field(description="why the last look for a newer snapshot failed")
    coverage: CoverageCounts | None = Field(description="null until the source was listed")
    coverage_error: str | None = Field(description="why the source could not be listed last")


class Readiness(BaseModel):
    """Whether requests should come here, and what is served, by the name of the index. Without a token, where one is
    needed, `ready` alone."""

    ready: bool
    indexes: dict[str, IndexReadiness] | None = Field(default=None, description="those that the token may ask")
    tokens: str | None = Field(default=None, description="why the tokens file cannot be read, while it cannot")
