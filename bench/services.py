"""Two services to compare with Gnomon's, both run by uvicorn like it. One says hello: it shows the cost of HTTP itself.
One serves a copy of the rows in SQLite, with the same JSON.

    python -m bench.services hello
    python -m bench.services sqlite COPY.db"""

import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Json(Response):
    """Encoded by msgspec, as fast as Gnomon's."""

    media_type = "application/json"


def hello() -> FastAPI:
    app = FastAPI()

    @app.get("/rows/{key:path}")
    async def rows(key: str) -> JSONResponse:
        return JSONResponse({"hello": "world"})

    return app


def sqlite(copy: str) -> FastAPI:
    app = FastAPI()
    connection = sqlite3.connect(f"file:{copy}?mode=ro", uri=True, check_same_thread=False)
    connection.row_factory = sqlite3.Row

    @app.get("/rows/{key:path}")
    async def rows(key: str) -> Json:
        found = [_shown(row) for row in connection.execute("SELECT * FROM pages WHERE url = ?", [key])]
        body = {"key": {"url": key}, "count": len(found), "rows": found, "snapshot": 1}
        return Json(msgspec.json.encode(body), 200 if found else 404)

    return app


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    at = (EPOCH + timedelta(microseconds=row["crawl_ts"])).isoformat().removesuffix("+00:00")
    return {**dict(row), "crawl_ts": f"{at.rstrip('0') if '.' in at else at}Z"}


class _Ready(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(f"ready at http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)


SERVICES: dict[str, Callable[..., FastAPI]] = {"hello": hello, "sqlite": sqlite}


def main(words: list[str]) -> None:
    app = SERVICES[words[0]](*words[1:])
    _Ready(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", access_log=False)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
