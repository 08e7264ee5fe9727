"""An index with what jobs and the service use of it."""

from typing import Any

from gnomon.shadow import OpenIndex
from gnomon.shadow import open_index as open_public


def open_index(*args: Any, **options: Any) -> OpenIndex:
    """`gnomon.open_index`, for jobs."""
    return OpenIndex.of(open_public(*args, **options))
