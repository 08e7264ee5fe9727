"""The HTTP service: an index behind routes. It imports `shadow` alone of the other packages, and no pyspark.

- `application`  `create_app(settings)`: everything put together
- `errors`     the one table from error to status, and the one shape of a failure
- `costs`      what the running request has cost so far
- `memory`     the memory that requests share
- `redaction`  error texts without the server's folders and hidden columns
- `settings`   the one table of settings
- `http`       connections, TLS, requests
- `indexes`    the indexes that are served
- `access`     tokens, rates, client addresses
- `logs`       log lines
- `api`        routes and answers
- `metrics`    metrics for Prometheus
- `process`    the program: a socket and its worker processes
- `page`       the files of the page at `/`
"""
