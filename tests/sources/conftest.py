"""Fixtures of the tests of formats."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.sources.corpora import load_canon
from tests.sources.tally import Outcome, Tally


@pytest.fixture(scope="session")
def canon() -> ModuleType:
    """What compares the values of foreign files."""
    return load_canon()


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    """Of all foreign files that a run reads; printed at its end, which `-s` shows."""
    tally = Tally()
    yield tally
    print(f"\n{tally.report()}")


@pytest.fixture
def outcome(entry: dict[str, str], tally: Tally) -> Outcome:
    """Of the file that a test reads."""
    return tally.of(entry)
