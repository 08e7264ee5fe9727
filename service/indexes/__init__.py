"""The indexes that are served.

- `config`         their names and paths
- `registry`       all of them, by name
- `served`         one index that follows its newest snapshot
- `threads`        the threads that read an index
- `shown_columns`  the columns that answers show
"""

from service.indexes.config import Place
from service.indexes.registry import Indexes
from service.indexes.served import ServedIndex
from service.indexes.shown_columns import visible

__all__ = [
    "Indexes",
    "Place",
    "ServedIndex",
    "visible",
]
