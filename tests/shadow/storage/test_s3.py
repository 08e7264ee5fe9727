"""An S3 server keeps the contract of a store; tests for S3 only."""

import pytest

from gnomon.shadow.storage import Storage, storage_at
from tests.shadow.storage.contract import SharedStorageContract


class TestS3(SharedStorageContract):
    refused = ("p=\n/x",)
    forks_apart = True

    @pytest.fixture
    def storage(self, s3_root: str) -> Storage:
        return storage_at(s3_root)
