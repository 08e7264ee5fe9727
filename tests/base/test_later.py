"""gnomon/base/later.py: modules and functions that are imported when they are first used."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gnomon.base.later import Later, late

PROGRAM = """
import sys
from gnomon.base.later import Later, late
colors = Later("colorsys")
function = late(lambda: colors.rgb_to_hsv)
print("colorsys" in sys.modules)
assert function(1.0, 0.0, 0.0) == (0.0, 1.0, 1.0)
print("colorsys" in sys.modules)
"""


@pytest.mark.process
def test_a_module_is_imported_at_its_first_use_and_not_before() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_threads_may_use_it_first_at_the_same_time() -> None:
    fractions = Later("fractions")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: fractions.Fraction, range(100)))
    assert {one.__name__ for one in found} == {"Fraction"}


def test_what_the_module_does_not_have_is_an_attribute_error_of_that_module() -> None:
    with pytest.raises(AttributeError, match="module 'math' has no attribute 'sinus'"):
        _ = Later("math").sinus


def test_a_late_function_passes_on_what_it_gets_and_raises() -> None:
    assert late(lambda: sorted)([2, 1], reverse=True) == [2, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        late(lambda: int)("x")
