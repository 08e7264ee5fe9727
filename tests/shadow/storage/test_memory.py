"""Memory keeps the contract of a store."""

import uuid

import pytest

from shadow.storage import Storage, storage_at
from tests.shadow.storage.contract import StorageContract


class TestMemory(StorageContract):
    refused = ("p=\n/x",)

    @pytest.fixture
    def storage(self) -> Storage:
        return storage_at(f"memory://{uuid.uuid4().hex}/some/root")

    @pytest.mark.skip(reason="a child's memory is its own")
    def test_a_forked_process_uses_the_store_or_is_told_that_it_cannot(self) -> None:  # type: ignore[override]
        pass
