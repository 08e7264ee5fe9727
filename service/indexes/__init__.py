"""The indexes that are served.

- `config`         the names and paths of the indexes
- `registry`       all served indexes, by name
- `served`         one index that follows its newest snapshot
- `answer_cache`   whole answers, kept
- `threads`        the threads that read an index
- `shown_columns`  the columns that answers show
"""

from gnomon.service.indexes.answer_cache import KeptAnswer
from gnomon.service.indexes.config import Place
from gnomon.service.indexes.registry import Indexes
from gnomon.service.indexes.served import ServedIndex
from gnomon.service.indexes.shown_columns import visible

__all__ = [
    "Indexes",
    "KeptAnswer",
    "Place",
    "ServedIndex",
    "visible",
]
