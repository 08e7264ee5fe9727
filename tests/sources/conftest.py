"""Fixtures of the tests of formats."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.sources.corpora import load_canon
from tests.sources.tally import Outcome, Tally


@pytest.fixture(scope="session")
def canon() -> ModuleType:
    """The module that compares the values of foreign files."""
    return load_canon()


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    """The tally of all foreign files of a run. It is printed at the end, which `-s` shows."""
    tally = Tally()
    yield tally
    print(f"\n{tally.report()}")


@pytest.fixture
def outcome(entry: dict[str, str], tally: Tally) -> Outcome:
    """The outcome of the file that a test reads."""
    return tally.of(entry)
