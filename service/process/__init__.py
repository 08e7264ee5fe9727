"""The service as a program.

- `server`      a socket, and one process or several that answer there
- `worker`      one process that serves
- `supervisor`  starts, watches and ends workers
"""

from gnomon.service.process.server import check, run

__all__ = [
    "check",
    "run",
]
