"""Where a file is cut so that several tasks scan it."""

from itertools import pairwise

from sources.contract import Split


def even_splits(size: int, target: int) -> list[Split]:
    """Ranges of equal length, about `target` bytes each, that cover a file of `size` bytes: at least one."""
    count = max(1, round(size / max(target, 1)))
    cuts = [size * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
