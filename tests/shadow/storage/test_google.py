"""Google Cloud Storage keeps the contract of a store; tests for it only."""

import pytest

from gnomon.shadow.storage import Storage, storage_at
from tests.shadow.storage.contract import SharedStorageContract


class TestGoogle(SharedStorageContract):
    refused = ("p=\n/x",)
    forks_apart = True
    many = 2_500  # more than two pages of a listing

    @pytest.fixture
    def storage(self, google_root: str) -> Storage:
        return storage_at(google_root)
