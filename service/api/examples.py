"""Requests and their answers, as the documentation shows them. A test asks each of them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """A request, the route that answers it, and its answer."""

    route: str
    method: str
    target: str
    status: int
    answer: Any
    body: Any = None


def _step(step: str, file: str | None, cost: tuple[int | None, int, int, bool, int, int], **own: Any) -> dict[str, Any]:
    """A step as an answer has it; `cost`: offset, reads, bytes, whether it was cached, begin, microseconds."""
    names = ("offset", "reads", "bytes", "cached", "begin_us", "microseconds")
    members = {"step": step, "file": file, **dict(zip(names, cost, strict=True)), **own}
    return {name: value for name, value in members.items() if value is not None}


def _failure(route: str, target: str, status: int, title: str, detail: str, **members: Any) -> Example:
    """A GET that fails, and its problem."""
    kind = f"urn:gnomon:problem:{title.lower().replace(' ', '-')}"
    problem = {"type": kind, "title": title, "status": status, "detail": detail, "instance": target, **members}
    return Example(route, "GET", target, status, problem)


EXAMPLES = {
    "a row": Example(
        "/rows/{key}",
        "GET",
        "/rows/https://example.com/a%3Fb=1",
        200,
        {
            "key": {"url": "https://example.com/a?b=1"},
            "count": 1,
            "rows": [
                {
                    "url": "https://example.com/a?b=1",
                    "title": "A",
                    "fetched": "2026-01-01T08:01:00Z",
                    "size": 100,
                    "dt": "2026-01-01",
                }
            ],
            "snapshot": 1,
        },
    ),
    "a row with what it cost": Example(
        "/rows/{key}",
        "GET",
        "/rows/https://example.com/?_where=dt=2026-01-02&_columns=title,dt&_explain=true",
        200,
        {
            "key": {"url": "https://example.com/"},
            "count": 1,
            "rows": [{"title": "Home again", "dt": "2026-01-02"}],
            "snapshot": 1,
            "explain": {
                "bucket": 2,
                "index": {
                    "nodes": 1,
                    "reads": 1,
                    "bytes": 749,
                    "filter_checks": 0,
                    "filter_bytes": 0,
                    "microseconds": 1255,
                },
                "source": {
                    "files": 1,
                    "reads": 7,
                    "bytes": 1796,
                    "page_map_reads": 0,
                    "page_map_bytes": 0,
                    "microseconds": 4177,
                },
                "steps": [
                    _step("key", None, (None, 0, 0, False, 78, 140), keys=1, bucket=2, index_files=1),
                    _step(
                        "index_file",
                        "dt=2026-01-02/20261121T121441-d33c20cab42b_00002.btree.avro",
                        (None, 1, 749, False, 282, 809),
                        entries=1,
                    ),
                    _step(
                        "node",
                        "dt=2026-01-02/20261121T121441-d33c20cab42b_00002.btree.avro",
                        (669, 0, 0, True, 1146, 4),
                        level=0,
                        entries=1,
                    ),
                    _step("source_file", "dt=2026-01-02/part-0.parquet", (None, 1, 1384, False, 1651, 1041), rows=1),
                    _step("page_map", "dt=2026-01-02/part-0.parquet", (None, 2, 206, False, 2722, 513)),
                    _step("pages", "dt=2026-01-02/part-0.parquet", (4, 4, 206, False, 3435, 39), columns=2, pages=4),
                    _step("decode", "dt=2026-01-02/part-0.parquet", (None, 0, 0, False, 3475, 1524), rows=1),
                    _step("key_check", "dt=2026-01-02/part-0.parquet", (None, 0, 0, False, 4869, 269), rows=1),
                ],
                "files": ["dt=2026-01-02/part-0.parquet"],
            },
        },
    ),
    "a key by column name": Example(
        "/rows",
        "GET",
        "/rows?url=https%3A%2F%2Fexample.com%2F&_where=dt%3D2026-01-02",
        200,
        {
            "key": {"url": "https://example.com/"},
            "count": 1,
            "rows": [
                {
                    "url": "https://example.com/",
                    "title": "Home again",
                    "fetched": "2026-01-02T08:00:00Z",
                    "size": 1000,
                    "dt": "2026-01-02",
                }
            ],
            "snapshot": 1,
        },
    ),
    "a batch": Example(
        "/rows",
        "POST",
        "/rows",
        200,
        {
            "results": [
                {"key": {"url": "https://example.com/a?b=1"}, "count": 1, "rows": [{"title": "A"}]},
                {"key": {"url": "https://example.com/none"}, "count": 0, "rows": []},
                {
                    "key": {"url": 7},
                    "error": {
                        "type": "urn:gnomon:problem:key-of-the-wrong-type",
                        "title": "Key of the wrong type",
                        "status": 400,
                        "detail": "key column url: expected string, found 7",
                        "instance": "/rows",
                        "column": "url",
                        "expected": "string",
                    },
                },
            ],
            "snapshot": 1,
        },
        {"keys": ["https://example.com/a?b=1", "https://example.com/none", 7], "columns": ["title"]},
    ),
    "a key of two columns": Example(
        "/indexes/{name}/rows",
        "GET",
        "/indexes/orders/rows?country=de&id=2",
        200,
        {
            "key": {"country": "de", "id": 2},
            "count": 1,
            "rows": [{"country": "de", "id": 2, "total": "120.00"}],
            "snapshot": 1,
        },
    ),
    "a batch with a null": Example(
        "/indexes/{name}/rows",
        "POST",
        "/indexes/orders/rows",
        200,
        {
            "results": [
                {"key": {"country": "fr", "id": 2}, "count": 1, "rows": [{"country": "fr", "id": 2, "total": "7.50"}]},
                {"key": {"country": None, "id": 3}, "count": 1, "rows": [{"country": None, "id": 3, "total": "1.00"}]},
            ],
            "snapshot": 1,
        },
        {"keys": [["fr", 2], {"country": None, "id": 3}]},
    ),
    "a row of an index by its name": Example(
        "/indexes/{name}/rows/{key}",
        "GET",
        "/indexes/pages/rows/https://example.com/a%3Fb=1?_columns=size",
        200,
        {"key": {"url": "https://example.com/a?b=1"}, "count": 1, "rows": [{"size": 100}], "snapshot": 1},
    ),
    "the indexes": Example(
        "/indexes",
        "GET",
        "/indexes",
        200,
        {
            "indexes": [
                {
                    "name": "pages",
                    "default": True,
                    "url": "/indexes/pages",
                    "open": True,
                    "snapshot": 1,
                    "rows": 3,
                    "keys": ["url"],
                },
                {
                    "name": "orders",
                    "default": False,
                    "url": "/indexes/orders",
                    "open": True,
                    "snapshot": 1,
                    "rows": 4,
                    "keys": ["country", "id"],
                },
            ]
        },
    ),
    "an index": Example(
        "/indexes/{name}",
        "GET",
        "/indexes/pages",
        200,
        {
            "name": "pages",
            "default": True,
            "open": True,
            "format": "parquet",
            "keys": [{"name": "url", "type": "string", "partition": False}],
            "columns": [
                {"name": "url", "type": "string"},
                {"name": "title", "type": "string"},
                {"name": "fetched", "type": "timestamp[us, tz=UTC]"},
                {"name": "size", "type": "int64"},
                {"name": "dt", "type": "string"},
            ],
            "included": [],
            "partition_columns": ["dt"],
            "flat": False,
            "buckets": 4,
            "source_files": 2,
            "segments": 1,
            "index_files": 3,
            "index_bytes": 2253,
            "filter_bytes": 264,
            "partitions": [
                {"partition": "dt=2026-01-01", "rows": 2, "source_files": 1, "index_bytes": 1504},
                {"partition": "dt=2026-01-02", "rows": 1, "source_files": 1, "index_bytes": 749},
            ],
            "partitions_total": 2,
            "bucket_rows": [0, 0, 2, 1],
            "bucket_bytes": [0, 0, 1498, 755],
            "snapshot": {
                "number": 1,
                "committed_at": "2026-11-21T12:14:41.454455Z",
                "operation": "build",
                "rows": 3,
                "table_version": None,
                "age_seconds": 0.238,
            },
            "refused": None,
            "coverage": {
                "snapshot": 1,
                "new": 0,
                "changed": 0,
                "vanished": 0,
                "lake_table": None,
                "newer": None,
                "age_seconds": 0.073,
            },
            "coverage_error": None,
            "snapshots": [
                {
                    "snapshot": 1,
                    "committed_at": "2026-11-21T12:14:41.454455Z",
                    "operation": "build",
                    "rows": 3,
                    "table_version": None,
                }
            ],
            "limits": {
                "max_key_bytes": 16384,
                "max_batch_keys": 10000,
                "max_rows": 10000,
                "max_answer_bytes": 33554432,
            },
        },
    ),
    "alive": Example(
        "/healthz",
        "GET",
        "/healthz",
        200,
        {"alive": True},
    ),
    "ready": Example(
        "/readyz",
        "GET",
        "/readyz",
        200,
        {
            "ready": True,
            "compiled": True,
            "indexes": {
                "pages": {
                    "open": True,
                    "snapshot": 1,
                    "table_version": None,
                    "rows": 3,
                    "source_files": 2,
                    "refused": None,
                    "unreachable": None,
                    "coverage": {
                        "snapshot": 1,
                        "new": 0,
                        "changed": 0,
                        "vanished": 0,
                        "lake_table": None,
                        "newer": None,
                        "age_seconds": 0.082,
                    },
                    "coverage_error": None,
                    "saturated_seconds": 0.0,
                },
                "orders": {
                    "open": True,
                    "snapshot": 1,
                    "table_version": None,
                    "rows": 4,
                    "source_files": 1,
                    "refused": None,
                    "unreachable": None,
                    "coverage": {
                        "snapshot": 1,
                        "new": 0,
                        "changed": 0,
                        "vanished": 0,
                        "lake_table": None,
                        "newer": None,
                        "age_seconds": 0.082,
                    },
                    "coverage_error": None,
                    "saturated_seconds": 0.0,
                },
            },
        },
    ),
    "a key of the wrong type": _failure(
        "/indexes/{name}/rows",
        "/indexes/orders/rows?country=de&id=two",
        400,
        "Key of the wrong type",
        "key column id: expected int, found 'two'",
        column="id",
        expected="int",
    ),
    "an unknown column": _failure(
        "/rows/{key}",
        "/rows/https://example.com/?_columns=name",
        400,
        "Unknown column",
        "the source has no column name; it has url, title, fetched, size, dt",
    ),
    "a key that is not there": _failure(
        "/rows/{key}",
        "/rows/https://example.com/none",
        404,
        "Key not found",
        "no row has this key in snapshot 1, which covers 3 rows of 2 source files",
        key={"url": "https://example.com/none"},
        snapshot=1,
        covered={"rows": 3, "source_files": 2},
    ),
    "a key that is not in a partition": _failure(
        "/rows/{key}",
        "/rows/https://example.com/a%3Fb=1?_where=dt=2026-01-02",
        404,
        "Key not found",
        "where dt=2026-01-02 no row has this key; only that part of snapshot 1, 1 of 3 rows, was asked",
        key={"url": "https://example.com/a?b=1"},
        snapshot=1,
        covered={"rows": 3, "source_files": 2},
        asked={"where": {"dt": ["2026-01-02"]}, "partitions": 1, "rows": 1},
    ),
    "a partition that is not there": _failure(
        "/rows/{key}",
        "/rows/https://example.com/?_where=dt=2026-01-09",
        400,
        "Partition not found",
        "where: no partition has dt=2026-01-09; dt has the values 2026-01-01, 2026-01-02",
    ),
    "an index that is not there": _failure(
        "/indexes/{name}",
        "/indexes/books",
        404,
        "No such index",
        "there is no index of this name; there are pages, orders",
    ),
    "a snapshot that is not there": _failure(
        "/rows/{key}",
        "/rows/https://example.com/?_snapshot=9",
        404,
        "Snapshot not found",
        "the index: snapshot 9 is not there (there is 1 alone)",
    ),
}
