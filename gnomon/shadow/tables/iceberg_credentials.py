"""The credentials that an Iceberg REST catalog vends for the files of a table, as the answer to a load of the table has
them, or that of the endpoint that the catalog names for their renewal: https://iceberg.apache.org/rest-catalog-spec/.

The first request is pyiceberg's load of the table, which says whether the catalog vends anything. pyiceberg gives only
the credentials for the table's metadata file, so that all of them, with their prefixes, are requested once more."""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import requests
from pyiceberg.catalog.rest import (
    ACCESS_DELEGATION_DEFAULT,
    CA_BUNDLE,
    CERT,
    CLIENT,
    DEFAULT_NAMESPACE_SEPARATOR,
    KEY,
    NAMESPACE_SEPARATOR_PROPERTY,
    SIGV4,
    SSL,
    Endpoints,
    RestCatalog,
)
from pyiceberg.catalog.rest.auth import AUTH_MANAGER, AuthManagerAdapter
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from pyiceberg.utils.properties import get_header_properties, property_as_bool

from gnomon.base.errors import Action
from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import Credential, storage_at, without_secrets
from gnomon.shadow.tables.iceberg_files import OF, StorageFileIO
from gnomon.shadow.tables.lake_source import govern_table

RENEWAL = "client.refresh-credentials-endpoint"
S3_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
GCS_TOKEN, SAS, SAS_END = "gcs.oauth2.token", "adls.sas-token", "adls.sas-token-expires-at-ms"
OPTIONS = {  # members that are settings of a store: obstore's names
    "s3": {"s3.endpoint": "endpoint", "client.region": "region", "s3.region": "region"},
    "gs": {"gcs.service.host": "base_url"},
}
SIGNING = ("s3.remote-signing-enabled", "s3.signer")
TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two bytes


def settle(table: Table, name: str) -> None:
    """Read and write the files of a table that was just loaded with the credentials that its catalog vends, if it vends
    any. UsageError where the catalog would sign each request instead."""
    vendor = govern_table(name, storage_at(table.metadata.location).root)
    catalog, merged = table.catalog, table.io.properties
    if not isinstance(catalog, RestCatalog) or vendor is None:
        return
    own = catalog.properties
    offered = [one for one in merged if one in (*S3_KEYS[:2], GCS_TOKEN) or one.startswith(SAS)]
    if any(merged[one] != own.get(one) for one in offered):
        _ways[name] = _way(table, catalog)
        vendor.vends(True)
        table.io, table.config = StorageFileIO({OF: name}), {}  # an object that may be copied keeps no secret
        return
    _ways.pop(name, None)
    if not offered and (str(merged.get(SIGNING[0])).lower() == "true" or merged.get(SIGNING[1])):
        what = "the catalog signs each request to the store (remote signing), which is not supported"
        raise UsageError(what, name, action=Action.VEND)
    vendor.vends(False)


def is_rest(catalog: str) -> bool:
    """Whether a catalog of pyiceberg's configuration is a REST catalog. StorageError for one that is not there."""
    found = Config().get_catalog_config(catalog)
    if found is None:
        raise StorageError(f"the catalog {catalog} has no settings here", action=Action.CHECK_CATALOG_SETTINGS)
    kind, uri = found.get("type"), found.get("uri")
    return kind.lower() == "rest" if isinstance(kind, str) else str(uri).startswith("http")


@dataclass(frozen=True, repr=False)
class _Way:
    """How the credentials of a table are requested. Without a `url` they are those of `settings`, once: pyiceberg alone
    can sign requests to this catalog."""

    url: str
    settings: Mapping[str, Any]
    session: Mapping[str, Any]


_ways: dict[str, _Way] = {}  # by the name of a table


def _way(table: Table, catalog: RestCatalog) -> _Way:
    merged, own = table.io.properties, catalog.properties
    if property_as_bool(own, SIGV4, False):
        return _Way("", dict(merged), {})
    *namespace, last = (quote(part, safe="") for part in table.name())
    separator = unquote(own.get(NAMESPACE_SEPARATOR_PROPERTY, DEFAULT_NAMESPACE_SEPARATOR))
    url = f"{catalog.url(Endpoints.load_table, namespace=separator.join(namespace), table=last)}?snapshots=refs"
    if renewal := merged.get(RENEWAL):
        url = renewal if "://" in renewal else f"{catalog.uri.rstrip('/')}/{renewal.lstrip('/')}"
    safe = {one for names in OPTIONS.values() for one in names}
    client: Any = own.get(SSL, {})
    certificate = client.get(CLIENT, {})
    session = {
        "headers": {"X-Iceberg-Access-Delegation": ACCESS_DELEGATION_DEFAULT, **get_header_properties(own)},
        "auth": AuthManagerAdapter(merged[AUTH_MANAGER]) if merged.get(AUTH_MANAGER) else None,
        "verify": client.get(CA_BUNDLE, True),
        "cert": (certificate[CERT], certificate[KEY]) if KEY in certificate else certificate.get(CERT),
    }
    return _Way(url, {key: value for key, value in merged.items() if key in safe}, session)


def renewed(name: str) -> Sequence[Credential] | None:
    """The credentials of a table whose catalog vends them; None where the table has to be loaded first. StorageError
    where the catalog does not answer."""
    way = _ways.get(name)
    if way is None:
        return None
    if not way.url:
        del _ways[name]
        return list(_of(way.settings, ""))
    where = without_secrets(way.url.partition("?")[0])
    try:
        response = requests.get(way.url, timeout=TIMEOUT, **way.session)
    except (requests.RequestException, ssl.SSLError) as error:
        what = f"the catalog cannot be reached at {where} ({type(error).__name__})"
        raise StorageError(what, name, action=Action.CHECK_CATALOG_RUNS) from None
    if response.status_code >= 500 or response.status_code == 429:
        what = f"the catalog cannot vend credentials now: {where} answers {response.status_code}"
        raise StorageError(what, name, action=Action.CHECK_CATALOG_RUNS)
    if response.status_code != 200:  # the login may have ended, and the address may have changed
        _ways.pop(name, None)
        return None
    try:
        answer = msgspec.json.decode(response.content, type=_Answer)
    except msgspec.MsgspecError:  # its text may have secrets
        raise StorageError(f"the catalog's answer at {where} is not one with credentials", name) from None
    general = {**way.settings, **(answer.config or {})}
    found = [one for each in answer.listed or () for one in _of({**general, **each.config}, each.prefix)]
    return [*found, *_of(general, "")]


class _Listed(msgspec.Struct):
    prefix: str
    config: dict[str, Any] = {}


class _Answer(msgspec.Struct):
    """The members with credentials of an answer to a load of a table, or to a request for credentials."""

    config: dict[str, Any] | None = None
    listed: list[_Listed] | None = msgspec.field(default=None, name="storage-credentials")


def _of(members: Mapping[str, Any], prefix: str) -> Iterator[Credential]:
    """The credentials among the members of a configuration, at most one for each kind of store."""

    def options(scheme: str) -> dict[str, Any]:
        return {ours: members[theirs] for theirs, ours in OPTIONS[scheme].items() if members.get(theirs)}

    def end(member: str) -> float | None:
        found = str(members.get(member, ""))
        return int(found) / 1000 if found.isdecimal() else None

    key, secret, token = (members.get(one) for one in S3_KEYS)
    if key and secret:
        secrets = {"access_key_id": key, "secret_access_key": secret, "token": token or None}
        yield Credential("s3", prefix, secrets, options("s3"), end("s3.session-token-expires-at-ms"))
    if token := members.get(GCS_TOKEN):
        yield Credential("gs", prefix, {"token": token}, options("gs"), end("gcs.oauth2.token-expires-at"))
    tokens = {one.removeprefix(f"{SAS}."): one for one in members if one.startswith(f"{SAS}.")}
    if len({one.partition(".")[0] for one in tokens}) == 1:  # a location here names no account
        account, member = next(iter(tokens.items()))
        given = {"account_name": account.partition(".")[0]}
        yield Credential("az", prefix, {"sas_token": members[member].lstrip("?")}, given, end(f"{SAS_END}.{account}"))
