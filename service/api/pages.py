"""The page at `/`, its files below `/page/`, and the description of the routes at `/docs`.

The files are read once, when the module is loaded: a request names one of them or gets 404, and reaches no disk."""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePosixPath

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """A file, ready to send."""

    content: bytes
    media_type: str
    etag: str


def _assets() -> dict[str, Asset]:
    found = {}
    for file in files("gnomon.service").joinpath("page").iterdir():
        media_type = _TYPES.get(PurePosixPath(file.name).suffix)
        if media_type is not None and file.is_file():
            content = file.read_bytes()
            found[file.name] = Asset(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')
    return found


ASSETS = _assets()


def add_pages(app: FastAPI) -> None:
    """Put the page, its files and `/docs` on the app. They are no part of `/openapi.json`."""

    async def page(request: Request) -> Response:
        return _sent(request, ASSETS["index.html"])

    async def docs(request: Request) -> Response:
        return _sent(request, ASSETS["docs.html"])

    async def asset(request: Request) -> Response:
        found = ASSETS.get(request.path_params["asset"])
        if found is None:
            raise HTTPException(404)
        return _sent(request, found)

    for path, handler in (("/", page), ("/docs", docs), ("/page/{asset}", asset)):
        app.add_api_route(path, handler, methods=["GET", "HEAD"], response_model=None, include_in_schema=False)


def _sent(request: Request, asset: Asset) -> Response:
    headers = {"etag": asset.etag}
    known = request.headers.get("if-none-match", "")
    if asset.etag in known or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers={**headers, "content-type": asset.media_type})
