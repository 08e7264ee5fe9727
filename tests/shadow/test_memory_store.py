"""The store of the crash tests keeps the contract of a store, in one process."""

import pytest

from gnomon.shadow.storage import Storage
from tests.shadow.memory_store import MemoryStorage
from tests.shadow.storage.contract import StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()
