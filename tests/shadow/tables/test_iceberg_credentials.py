"""The members of a REST catalog's answers that are credentials, in each form in which catalogs give them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.errors import UsageError
from gnomon.shadow.storage import Credential, Vendor, credentials, vendor_of
from gnomon.shadow.tables import iceberg_credentials, lake_source
from tests.jobs.dedup.lake_tables import configure
from tests.stores.process import Store
from tests.stores.vending import CheckedS3, Vending, vending_catalog

END, END_MS = 2e9, "2000000000000"
Answers = Callable[..., Vendor]


@pytest.fixture
def vending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vending]:
    """A catalog with an empty table on this disk, whose answers have what a test says."""
    monkeypatch.setattr(credentials, "_vendors", {})
    monkeypatch.setattr(credentials, "_roots", {})
    monkeypatch.setattr(iceberg_credentials, "_ways", {})
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    store = Store("", dict.fromkeys(names, "http://127.0.0.1:1"))
    with vending_catalog(CheckedS3(store), store, tmp_path, f"file://{tmp_path}/lake") as running:
        configure(monkeypatch, type="rest", uri=running.uri, token=running.token)
        running.catalog.create_namespace(("db", "é"))
        running.catalog.create_table(("db", "é", "t"), pa.schema([("id", pa.int64())]))
        yield running


@pytest.fixture
def answers(vending: Vending, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """A function that lets the catalog answer a `config` and `storage-credentials`, also of a renewal. Returns the
    vendor of the table, which was loaded."""

    def answering(config: dict[str, Any], listed: Any = None, renewal: Any = None) -> Vendor:
        table = vending.catalog.load_table(("db", "é", "t"))
        loaded = {"metadata-location": table.metadata_location, "metadata": table.metadata.model_dump(mode="json")}

        def answer(method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
            vending.asked[path.rpartition("/")[2]] += 1
            if path == "/v1/config":
                return 200, {"defaults": {}, "overrides": {}}
            if path.endswith("/credentials"):
                return 200, {"storage-credentials": renewal}
            assert path == "/v1/namespaces/db%1F%C3%A9/tables/t"
            return 200, loaded | {"config": config, "storage-credentials": listed or []}

        monkeypatch.setattr(vending, "answer", answer)
        assert lake_source("iceberg:here.db.é.t").name
        found = vendor_of("iceberg:here.db.é.t")
        assert found is not None
        return found

    return answering


S3 = {
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.session-token-expires-at-ms": END_MS,
    "s3.endpoint": "http://127.0.0.1:9",
    "client.region": "eu-north-1",
}
S3_SECRETS = {"access_key_id": "key", "secret_access_key": "secret", "token": "token"}
SAS = "adls.sas-token.lake.dfs.core.windows.net"
FORMS: dict[str, tuple[dict[str, Any], str, dict[str, Any], dict[str, Any], float | None]] = {
    "s3": (S3, "s3", S3_SECRETS, {"endpoint": "http://127.0.0.1:9", "region": "eu-north-1"}, END),
    "keys without an end": (
        {"s3.access-key-id": "key", "s3.secret-access-key": "secret"},
        "s3",
        S3_SECRETS | {"token": None},
        {},
        None,
    ),
    "gs": (
        {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": END_MS, "gcs.service.host": "http://127.0.0.1:9"},
        "gs",
        {"token": "t"},
        {"base_url": "http://127.0.0.1:9"},
        END,
    ),
    "az": (
        {SAS: "?sig=s", "adls.sas-token-expires-at-ms.lake.dfs.core.windows.net": END_MS},
        "az",
        {"sas_token": "sig=s"},
        {"account_name": "lake"},
        END,
    ),
}


@pytest.mark.parametrize("place", ["config", "listed", "renewed"])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_credentials_is_read(answers: Answers, vending: Vending, form: str, place: str) -> None:
    members, scheme, secrets, options, end = FORMS[form]
    listed = [{"prefix": f"{scheme}://b/t", "config": members}]
    if place == "config":
        vendor = answers(members)
    elif place == "listed":
        vendor = answers(members, listed)
    else:
        renewal = f"{vending.uri}/v1/namespaces/db/tables/t/credentials"
        vendor = answers(members | {"client.refresh-credentials-endpoint": renewal}, None, listed)
    found = vendor.credential(f"{scheme}://b/t/a")
    assert isinstance(found, Credential)
    assert (found.scheme, found.secrets, found.options, found.end) == (scheme, secrets, options, end)
    assert found.prefix == ("" if place == "config" else f"{scheme}://b/t")
    assert vending.asked["credentials"] == (place == "renewed")
    other = vendor.credential(f"{scheme}://other/a")
    assert (other is None) == (place == "renewed"), "a load has them for all files of the table, too"


def test_a_catalog_without_credentials_vends_none(answers: Answers, vending: Vending) -> None:
    vendor = answers({"s3.endpoint": "http://127.0.0.1:9"})
    assert vendor.credential("s3://b/t/a") is None
    assert vending.asked["t"] == 1, "the first load said so"


def test_tokens_of_two_azure_accounts_are_not_confused(answers: Answers) -> None:
    """A location names a container alone."""
    vendor = answers({SAS: "sig=1", "adls.sas-token.other.dfs.core.windows.net": "sig=2"})
    assert vendor.credential("az://b/t/a") is None


@pytest.mark.parametrize("member", [{"s3.remote-signing-enabled": "true"}, {"s3.signer": "S3V4RestSigner"}])
def test_remote_signing_is_refused_unless_credentials_are_vended(answers: Answers, member: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^iceberg:here.db.é.t: the catalog signs each request .*; let the catalog"):
        answers(member)
    assert answers(member | S3).credential("s3://b/t/a") is not None
