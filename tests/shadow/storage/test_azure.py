"""Azure's Blob storage keeps the contract of a store; tests for Azure only."""

import pytest

from gnomon.shadow.storage import Storage, storage_at
from gnomon.shadow.storage.contract import difference
from tests.shadow.storage.contract import SharedStorageContract


class TestAzure(SharedStorageContract):
    refused = ("p=\\/x", "p=\n/x")
    forks_apart = True
    many = 1_200  # more than one page of a listing; Azurite takes 10 ms for each put

    @pytest.fixture
    def storage(self, azure_root: str) -> Storage:
        return storage_at(azure_root)


def test_a_listing_and_a_read_show_one_etag(azure_root: str) -> None:
    """Azure's listings write an ETag without quotes, its reads with them."""
    storage = storage_at(azure_root)
    storage.put_new("f", [b"hello"])
    [listed] = storage.list()
    with storage.open("f") as opened:
        assert opened.etag == listed.etag
        assert difference(listed, opened) == ""
    with storage.open("f", known=listed) as file:
        assert file.read_range(0, 5) == b"hello"
