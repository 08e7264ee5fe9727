"""A worker as a program: `python -m gnomon.service.process LISTENING LINK`, numbers of descriptors that it inherits."""

import os
import sys
from multiprocessing.connection import Connection

from gnomon.service.process.worker import work

if __name__ == "__main__":
    work(int(sys.argv[1]), Connection(int(sys.argv[2])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that hangs in a read keeps no process
