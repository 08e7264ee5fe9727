"""The files of each task."""

import heapq
from collections.abc import Sequence

MOST_TASKS = 10_000


def shares_of(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """The ordinals of files for each task. The largest files come first, each for the task with the fewest bytes."""
    tasks = [(0, task) for task in range(max(1, min(len(sizes), max(4 * cores, len(sizes) // 64), MOST_TASKS)))]
    shares: list[list[int]] = [[] for _ in tasks]
    for file in sorted(range(len(sizes)), key=lambda file: -sizes[file]):
        load, task = heapq.heappop(tasks)
        shares[task].append(file)
        heapq.heappush(tasks, (load + sizes[file] + 1, task))
    return shares
