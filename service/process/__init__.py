"""The service as a program.

- `server`      a socket, and one process or several that answer there
- `worker`      one process that serves
- `__main__`    a worker as a program
- `supervisor`  starts, watches and ends workers
- `self_check`  `gnomon serve --check`
"""

from gnomon.service.process.self_check import check
from gnomon.service.process.server import run

__all__ = [
    "check",
    "run",
]
