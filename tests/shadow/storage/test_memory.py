"""Memory keeps the contract of a store."""

import uuid

import pytest

from gnomon.shadow.storage import Storage, storage_at
from tests.shadow.storage.contract import PickledStorageContract


class TestMemory(PickledStorageContract):
    refused = ("p=\n/x",)

    @pytest.fixture
    def storage(self) -> Storage:
        return storage_at(f"memory://{uuid.uuid4().hex}/some/root")
