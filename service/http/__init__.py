"""HTTP below the routes: connections, TLS, requests as paths, queries and bodies.

- `connection`        HTTP/1.1 on one connection, with limits
- `limits`            the limits of a connection, from the settings
- `idle_connections`  closes an idle connection where there are too many
- `request_cycle`     a request and its answer on a connection
- `send_progress`     closes the connection of a client that does not read its answer
- `transports`        TLS over a socket, and a close that lets the client read the answer
- `tls`               certificates
- `requests`          paths and bodies to keys
- `options`           the one table of the options of a query
"""

from gnomon.service.http.connection import protocol
from gnomon.service.http.options import NAMES, OPTIONS, Options, cut, no_others, query_options
from gnomon.service.http.requests import (
    ENCODED,
    BatchRequest,
    may_lack_slashes,
    parse_batch,
    path_key,
    read_body,
    route_path,
)
from gnomon.service.http.tls import tls_context

__all__ = [
    "ENCODED",
    "NAMES",
    "OPTIONS",
    "BatchRequest",
    "Options",
    "cut",
    "may_lack_slashes",
    "no_others",
    "parse_batch",
    "path_key",
    "protocol",
    "query_options",
    "read_body",
    "route_path",
    "tls_context",
]
