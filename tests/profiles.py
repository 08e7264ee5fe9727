"""How much the random and the exhaustive tests try: `GNOMON_TEST_PROFILE` is one of these.

| profile | hypothesis | bytes that are flipped | long cases of one kind |
|---|---|---|---|
| `quick` | a tenth of the examples, at least 5 | every 13th, and the first and last 16 | a third |
| `rotating` (if unset) | `full` in an eighth of the files, another one each day; `quick` in the others | | |
| `full` | all | all | all |
| `nightly` | ten times as many | all | all |

The third, too, is another one each day.
"""

import datetime
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")

VARIABLE = "GNOMON_TEST_PROFILE"
SHARES = {"quick": 0.1, "full": 1.0, "nightly": 10.0}  # of the examples that a test asks for
ROTATING = "rotating"
EIGHTHS = 8
THIRDS = 3
FEWEST_EXAMPLES = 5
HYPOTHESIS_DEFAULT = 100
STRIDE = 13
WHOLE_ENDS = 16  # positions at both ends that `quick` never leaves out: headers, footers and markers lie there

PROFILE = os.environ.get(VARIABLE, ROTATING)
if PROFILE not in (*SHARES, ROTATING):
    raise ValueError(f"{VARIABLE}={PROFILE}: expected one of {', '.join(SHARES)}, {ROTATING}")
_current = ["quick" if PROFILE == ROTATING else PROFILE]  # of the file whose tests are collected or run


def examples(full: int) -> int:
    """The number of examples for a test that tries `full` of them in the profile `full`."""
    return max(FEWEST_EXAMPLES, round(full * SHARES[_current[0]]))


def positions(all_of_them: Sequence[int]) -> Sequence[int]:
    """The positions that a test of damaged bytes tries, of `all_of_them`."""
    if _current[0] != "quick" or len(all_of_them) <= 2 * WHOLE_ENDS:
        return all_of_them
    middle = all_of_them[WHOLE_ENDS:-WHOLE_ENDS:STRIDE]
    return [*all_of_them[:WHOLE_ENDS], *middle, *all_of_them[-WHOLE_ENDS:]]


def stride(full: int) -> int:
    """The distance between the points that a test tries, of one that tries every `full`-th in the profile `full`."""
    return full * STRIDE if _current[0] == "quick" else full


def cases(all_of_them: Iterable[Case]) -> list[Case]:
    """The cases that a test runs, of many of one kind, where each takes long."""
    found = list(all_of_them)
    return found[_today() % max(1, min(THIRDS, len(found))) :: THIRDS] if _current[0] == "quick" else found


def _today() -> int:
    """The day, in days."""
    return datetime.date.today().toordinal()


def load() -> None:
    """Make the profiles hypothesis' own: no deadlines, for tests measure no time."""
    for name, share in SHARES.items():
        most = max(FEWEST_EXAMPLES, round(HYPOTHESIS_DEFAULT * share))
        settings.register_profile(name, deadline=None, max_examples=most)
    settings.load_profile(_current[0])


def begin(file: Path) -> None:
    """Take the profile of a test file, before it is imported and before each of its tests."""
    if PROFILE == ROTATING:
        wanted = "full" if (zlib.crc32(file.name.encode()) + _today()) % EIGHTHS == 0 else "quick"
        if wanted != _current[0]:
            _current[0] = wanted
            settings.load_profile(wanted)
