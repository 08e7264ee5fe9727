"""The HTTP service: an index behind routes. Knows `shadow` alone of ours; loads no pyspark.

- `app`        `create_app(settings)`: everything put together
- `server`     `run(settings)`: the app on a socket, until a signal
- `settings`   the one table of settings
- `routes`     what is answered where
- `options`    the one table of the options of a query
- `requests`   the key in a path, the keys in a body
- `answers`    keys and options to the bytes of an answer; runs in the index's threads
- `threads`    the threads of an index: so many, so many requests that wait, so long
- `accept`     which media type an answer has; `arrow` answers as Arrow streams
- `questions`  what is asked of an index, at one snapshot; `explained` what its answer cost
- `keys`       keys as requests give them and as answers show them
- `described`  what is told of an index; `columns` which of its columns are shown
- `served`     an index that follows its newest snapshot; `indexes` all of them, `places` their names
- `guard`      who asks and whether they may: `tokens`, `rates`, `peers` (addresses, through proxies)
- `headers`    the headers of every answer, other origins; `transport` TLS
- `readiness`  what `/readyz` says, from memory
- `errors`     the one table from error to status, the one shape of a failure
- `redaction`  error texts without the server's folders and what is not shown
- `pages`      the page at `/`, its files in `page/`, and `/docs`
- `models`     the shapes of answers, for OpenAPI; `openapi` the rest of the document, `examples` what it shows
"""
