"""The HTTP service, which answers keys from indexes. Of Gnomon's other packages it imports only `shadow` and `base`,
and it loads no pyspark.

- `application`  `create_app(settings)`: builds the ASGI application
- `errors`     the status of each error, and the answer to a failed request, without the server's folders
- `costs`      the running request: its cost so far, and its spans
- `memory`     the memory that requests share
- `logs`       the log: messages and requests as lines of JSON
- `token_lines`  bearer tokens, and the lines of their file
- `settings`   the one table of settings
- `http`       connections, TLS, requests
- `indexes`    the indexes that are served
- `access`     tokens, rates, client addresses
- `api`        routes and answers
- `metrics`    metrics for Prometheus
- `process`    the program: a socket and its worker processes
- `page`       the files of the page at `/`
- `mcp`        tools for agents, which ask the routes; needs the extra `mcp`

`app` is the ASGI application for servers like uvicorn (`uvicorn gnomon.service:app`). It is made when it is first used:
importing this package opens nothing and loads no web framework.
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["app"]


def _made(name: str) -> Any:
    """The ASGI application, with the settings of the environment. Raises what `application.app_of_environment`
    raises."""
    if name != "app":
        raise AttributeError(f"module 'gnomon.service' has no attribute {name!r}")
    found = importlib.import_module("gnomon.service.application").app_of_environment()
    globals()["app"] = found
    return found


if not TYPE_CHECKING:  # with it, a type checker would accept any name
    __getattr__ = _made
else:
    app: Any
