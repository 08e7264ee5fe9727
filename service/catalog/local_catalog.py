"""A catalog of pyiceberg's configuration (SQL, Glue, Hive, ...) behind Iceberg's REST protocol, for those who have no
REST catalog. Namespaces, tables and commits; views and transactions over several tables are not in its interface.

Each commit is the catalog's own, which compares the table with the one that the commit began from."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
from anyio import CapacityLimiter, to_thread
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import CreateTableRequest, RegisterTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from starlette.requests import Request
from starlette.responses import Response

from gnomon.base.errors import Action
from gnomon.service.catalog.upstream import Headers, UpstreamError
from gnomon.service.settings import Settings
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import words_of

SEPARATOR = "\x1f"  # between the levels of a namespace, in a path
NO_BODY = 204
# Errors of catalogs, with the status and the type that clients know.
ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchIdentifierError, 404, "NoSuchTableException"),
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (ValidationException, 400, "ValidationException"),
    (ValidationError, 400, "BadRequestException"),
    (NotImplementedError, 406, "UnsupportedOperationException"),
)

Found = tuple[int, Any]  # a status, and the JSON of the answer
Identifier = tuple[str, ...]


class LocalCatalog:
    """The catalog of a name in pyiceberg's configuration, as the upstream of `gnomon catalog`."""

    def __init__(self, settings: Settings) -> None:
        """UsageError for a REST catalog, StorageError where the catalog cannot be opened."""
        name = settings.catalog or ""
        try:
            self._catalog: Catalog = load_catalog(name)
        except Exception as error:
            what = f"the catalog {name} cannot be opened ({type(error).__name__}: {words_of(error)})"
            raise StorageError(what, action=Action.CHECK_CATALOG_SETTINGS) from error
        if self._catalog.properties.get("type") == "rest":
            raise UsageError(f"{name} is a REST catalog: name its address, as --upstream")
        self._most_body_bytes = settings.max_body_bytes
        self._threads = CapacityLimiter(settings.threads)
        self._handlers: dict[tuple[str, str], Callable[..., Found]] = {
            ("GET", "namespaces"): self._list_namespaces,
            ("POST", "namespaces"): self._create_namespace,
            ("GET", "namespaces/{}"): self._load_namespace,
            ("HEAD", "namespaces/{}"): self._load_namespace,
            ("DELETE", "namespaces/{}"): self._drop_namespace,
            ("POST", "namespaces/{}/properties"): self._update_properties,
            ("GET", "namespaces/{}/tables"): self._list_tables,
            ("POST", "namespaces/{}/tables"): self._create_table,
            ("POST", "namespaces/{}/register"): self._register_table,
            ("GET", "namespaces/{}/tables/{}"): self._load_table,
            ("HEAD", "namespaces/{}/tables/{}"): self._load_table,
            ("POST", "namespaces/{}/tables/{}"): self._commit,
            ("DELETE", "namespaces/{}/tables/{}"): self._drop_table,
            ("POST", "namespaces/{}/tables/{}/metrics"): self._take_metrics,
            ("POST", "tables/rename"): self._rename_table,
        }

    async def answer(self, request: Request, path: str, body: bytes | None = None) -> Response:
        """The answer to a request. UpstreamError for a failure, as the protocol has it."""
        if path == "/v1/config":
            return _response(
                200, {"defaults": {}, "overrides": {}, "endpoints": [_endpoint(*key) for key in self._handlers]}
            )
        parts = path.removeprefix("/v1/").split("/")
        names = [unquote(part) for part in parts[1::2]] if parts[0] == "namespaces" and len(parts) != 1 else []
        route = "/".join("{}" if names and place in (1, 3) else part for place, part in enumerate(parts))
        handler = self._handlers.get((request.method, route))
        if handler is None:
            raise UpstreamError(f"{request.method} {path} is not of this catalog", 404, "NotFoundException")
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > self._most_body_bytes:
                what = f"the body is larger than {self._most_body_bytes} bytes"
                raise UpstreamError(what, 413, "BadRequestException")
        try:
            asked = msgspec.json.decode(data) if data else {}
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"the body: {error}", 400, "BadRequestException") from None
        identifier = tuple(names[0].split(SEPARATOR)) + tuple(names[1:2]) if names else ()
        call = partial(handler, identifier, asked, request.query_params)
        status, found = await to_thread.run_sync(_answered, call, limiter=self._threads)
        return _response(status, None if request.method == "HEAD" else found)

    async def whole_answer(self, request: Request, path: str) -> tuple[Response, bytes]:
        answer = await self.answer(request, path)
        return answer, bytes(answer.body)

    async def table(self, path: str, headers: Headers) -> TableMetadata | Response:
        parts = path.removeprefix("/v1/").split("/")
        if len(parts) != 4:
            raise UpstreamError(f"{path} is not of this catalog, which has no prefix", 404, "NoSuchTableException")
        _, namespace, _, name = parts
        identifier = (*unquote(namespace).split(SEPARATOR), unquote(name))
        call = partial(self._catalog.load_table, identifier)
        table: Table = await to_thread.run_sync(_answered, call, limiter=self._threads)
        return table.metadata

    async def plans(self, headers: Headers) -> bool:
        return False

    def check(self) -> str:
        _answered(self._catalog.list_namespaces)
        return f"{self._catalog.name}: the catalog lists its namespaces"

    async def close(self) -> None:
        self._catalog.close()

    # -- handlers: each takes an identifier, the body and the query ----------------------------------------------------

    def _list_namespaces(self, _: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        parent = tuple(query["parent"].split(SEPARATOR)) if query.get("parent") else ()
        return 200, {"namespaces": self._catalog.list_namespaces(parent)}

    def _create_namespace(self, _: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        name, properties = tuple(body["namespace"]), body.get("properties") or {}
        self._catalog.create_namespace(name, properties)
        return 200, {"namespace": name, "properties": properties}

    def _load_namespace(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        return 200, {"namespace": name, "properties": self._catalog.load_namespace_properties(name)}

    def _drop_namespace(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        self._catalog.drop_namespace(name)
        return NO_BODY, None

    def _update_properties(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        done = self._catalog.update_namespace_properties(
            name, set(body.get("removals") or ()), body.get("updates") or {}
        )
        return 200, {"removed": done.removed, "updated": done.updated, "missing": done.missing}

    def _list_tables(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        tables = self._catalog.list_tables(name)
        return 200, {"identifiers": [{"namespace": one[:-1], "name": one[-1]} for one in tables]}

    def _create_table(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        asked = CreateTableRequest.model_validate(
            {"location": None, "partition-spec": None, "write-order": None, **body}
        )
        arguments: dict[str, Any] = {
            "identifier": (*name, asked.name),
            "schema": asked.table_schema,
            "location": asked.location,
            "partition_spec": asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            "sort_order": asked.write_order or UNSORTED_SORT_ORDER,
            "properties": asked.properties,
        }
        if asked.stage_create:
            if self._catalog.table_exists(arguments["identifier"]):
                raise TableAlreadyExistsError(f"Table {'.'.join(arguments['identifier'])} already exists")
            return 200, {
                "metadata": _json(self._catalog.create_table_transaction(**arguments).table_metadata),
                "config": {},
            }
        return _loaded(self._catalog.create_table(**arguments))

    def _register_table(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        asked = RegisterTableRequest.model_validate({"overwrite": False, **body})
        return _loaded(self._catalog.register_table((*name, asked.name), asked.metadata_location, asked.overwrite))

    def _load_table(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        return _loaded(self._catalog.load_table(name))

    def _commit(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        asked = CommitTableRequest.model_validate({"identifier": {"namespace": name[:-1], "name": name[-1]}, **body})
        if any(one.type == "assert-create" for one in asked.requirements):
            staged = self._catalog.create_table_transaction(name, Schema()).table_metadata
            table: Table = StagedTable(name, staged, "", load_file_io(self._catalog.properties), self._catalog)
        else:
            table = self._catalog.load_table(name)
        done = self._catalog.commit_table(table, asked.requirements, asked.updates)
        return 200, {"metadata-location": done.metadata_location, "metadata": _json(done.metadata)}

    def _drop_table(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        if query.get("purgeRequested", "").lower() == "true":
            self._catalog.purge_table(name)
        else:
            self._catalog.drop_table(name)
        return NO_BODY, None

    def _take_metrics(self, name: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        """Reports of clients, which no catalog of pyiceberg keeps."""
        return NO_BODY, None

    def _rename_table(self, _: Identifier, body: Any, query: Mapping[str, str]) -> Found:
        before, after = ((*body[end]["namespace"], body[end]["name"]) for end in ("source", "destination"))
        self._catalog.rename_table(before, after)
        return NO_BODY, None


def _answered(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        for kind, status, name in ERRORS:
            if isinstance(error, kind):
                raise UpstreamError(words_of(error), status, name) from None
        if isinstance(error, (KeyError, TypeError, ValueError)):
            raise UpstreamError(f"{type(error).__name__}: {words_of(error)}", 400, "BadRequestException") from error
        raise UpstreamError(f"{type(error).__name__}: {words_of(error)}") from error


def _loaded(table: Table) -> Found:
    return 200, {"metadata-location": table.metadata_location, "metadata": _json(table.metadata), "config": {}}


def _json(metadata: TableMetadata) -> msgspec.Raw:
    return msgspec.Raw(metadata.model_dump_json(by_alias=True, exclude_none=True).encode())


def _endpoint(method: str, route: str) -> str:
    return f"{method} /v1/{{prefix}}/{route}".replace("{}", "{namespace}", 1).replace("{}", "{table}", 1)


def _response(status: int, found: Any) -> Response:
    content = b"" if found is None else msgspec.json.encode(found)
    return Response(content, status, media_type=None if found is None else "application/json")
