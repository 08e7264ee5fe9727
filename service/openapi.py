"""What `/docs` says of the routes, where FastAPI cannot read it from their signatures."""

from typing import Any

from service import models
from service.errors import MEDIA_TYPE


def _parameter(name: str, place: str, description: str, kind: str = "string") -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": kind},
    }


KEY = _parameter("key", "path", "The key: everything after /rows/, percent-decoded once.")
NAME = _parameter("name", "path", "The name of the index; `/indexes` lists them.")
OPTIONS = [
    _parameter("columns", "query", "The columns of the rows, with commas between them; all when left out."),
    _parameter("where", "query", "A partition, like `where=dt=2026-01-01`; repeatable."),
    _parameter("limit", "query", "The most rows to return; `count` is of all.", "integer"),
    _parameter("snapshot", "query", "The snapshot to ask, instead of the newest.", "integer"),
    _parameter("explain", "query", "Whether to say what the answer cost.", "boolean"),
]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA_TYPE: {"schema": models.Problem.model_json_schema()}}
    meaning = {
        400: "The request, or the type of a key, is wrong",
        404: "No covered row has the key, or the snapshot is gone",
        409: "The source changed since it was indexed",
        413: "The request is beyond a limit",
        503: "Index or source are damaged or unreachable",
    }
    return {status: {"description": meaning[status], "content": content} for status in statuses}


BATCH = {"required": True, "content": {"application/json": {"schema": models.BatchRequest.model_json_schema()}}}
