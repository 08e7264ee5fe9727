"""HTTP below the routes: connections, TLS, requests as paths, queries and bodies.

- `connection`  HTTP/1.1 on one connection, with limits
- `transports`  the ends of a connection: TLS, idle ones, clients that do not read
- `tls`         certificates
- `requests`    paths, queries and bodies to keys and options
"""

from gnomon.service.http.connection import PROBES, protocol
from gnomon.service.http.requests import (
    ENCODED,
    NAMES,
    OPTIONS,
    WITH_KEYS,
    BatchRequest,
    Options,
    RangeOptions,
    cut,
    may_lack_slashes,
    next_target,
    options_alone,
    parse_batch,
    path_key,
    query_options,
    read_body,
    route_path,
)
from gnomon.service.http.tls import tls_context

__all__ = [
    "ENCODED",
    "NAMES",
    "OPTIONS",
    "PROBES",
    "WITH_KEYS",
    "BatchRequest",
    "Options",
    "RangeOptions",
    "cut",
    "may_lack_slashes",
    "next_target",
    "options_alone",
    "parse_batch",
    "path_key",
    "protocol",
    "query_options",
    "read_body",
    "route_path",
    "tls_context",
]
