"""The indexes that are served.

- `places`   the names, paths and shown columns of the indexes
- `served`   all served indexes; each follows its newest snapshot
- `threads`  the threads that read an index
"""

from gnomon.service.indexes.places import Place, hidden_keys, visible, visible_keys
from gnomon.service.indexes.served import Indexes, KeptAnswer, ServedIndex

__all__ = [
    "Indexes",
    "KeptAnswer",
    "Place",
    "ServedIndex",
    "hidden_keys",
    "visible",
    "visible_keys",
]
