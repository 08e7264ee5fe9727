"""The store of the crash tests is a store like any other, in one process."""

import pytest

from shadow.storage import Storage
from tests.shadow.memory_store import MemoryStorage
from tests.shadow.storage.contract import StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()

    @pytest.mark.skip(reason="it is this process's alone")
    def test_a_pickled_storage_is_the_same_place(self) -> None:  # type: ignore[override]
        pass

    @pytest.mark.skip(reason="it is this process's alone")
    def test_a_forked_process_uses_the_store_or_is_told_that_it_cannot(self) -> None:  # type: ignore[override]
        pass
