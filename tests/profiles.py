"""How much the random and the exhaustive tests try: `GNOMON_TEST_PROFILE` is `quick`, `full` (if unset) or `nightly`.

| profile | hypothesis | bytes that are flipped |
|---|---|---|
| `quick` | a tenth of the examples, at least 5 | every 13th, and the first and last 16 |
| `full` | all | all |
| `nightly` | ten times as many | all |
"""

import os
from collections.abc import Sequence

from hypothesis import settings

VARIABLE = "GNOMON_TEST_PROFILE"
SHARES = {"quick": 0.1, "full": 1.0, "nightly": 10.0}  # of the examples that a test asks for
FEWEST_EXAMPLES = 5
HYPOTHESIS_DEFAULT = 100
STRIDE = 13
WHOLE_ENDS = 16  # positions at both ends that `quick` never leaves out: headers, footers and markers lie there

PROFILE = os.environ.get(VARIABLE, "full")
if PROFILE not in SHARES:
    raise ValueError(f"{VARIABLE}={PROFILE}: expected one of {', '.join(SHARES)}")


def examples(full: int) -> int:
    """The number of examples for a test that tries `full` of them in the profile `full`."""
    return max(FEWEST_EXAMPLES, round(full * SHARES[PROFILE]))


def positions(all_of_them: Sequence[int]) -> Sequence[int]:
    """The positions that a test of damaged bytes tries, of `all_of_them`."""
    if PROFILE != "quick" or len(all_of_them) <= 2 * WHOLE_ENDS:
        return all_of_them
    middle = all_of_them[WHOLE_ENDS:-WHOLE_ENDS:STRIDE]
    return [*all_of_them[:WHOLE_ENDS], *middle, *all_of_them[-WHOLE_ENDS:]]


def stride(full: int) -> int:
    """The distance between the points that a test tries, of one that tries every `full`-th in the profile `full`."""
    return full * STRIDE if PROFILE == "quick" else full


def load() -> None:
    """Make the profile hypothesis' own: no deadlines, for tests measure no time."""
    for name in SHARES:
        settings.register_profile(name, deadline=None, max_examples=examples(HYPOTHESIS_DEFAULT))
    settings.load_profile(PROFILE)
