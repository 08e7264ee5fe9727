"""Logs: JSON lines on stderr.

- `setup`       the log and its thread
- `access_log`  one line for each request
"""

from gnomon.service.logs.access_log import AccessLog, Entry
from gnomon.service.logs.setup import Lines

__all__ = [
    "AccessLog",
    "Entry",
    "Lines",
]
