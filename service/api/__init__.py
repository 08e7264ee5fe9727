"""The routes and their answers.

- `routes`     the handlers
- `query`      a request for rows, run at one snapshot
- `answers`    answers in JSON and as Arrow streams
- `ranges`     pages of a range of keys
- `responses`  the bytes of an answer, and the memory that they hold until they are sent
- `describe`   the state and the description of indexes
- `pages`      the page at `/`, and the headers of every answer
- `shapes`     the shapes of answers
- `openapi`    the OpenAPI document, with the examples of `examples.json`
"""

from gnomon.service.api.pages import CORS, add_pages, headers_of, origins
from gnomon.service.api.routes import Service, add_probes, add_routes

__all__ = [
    "CORS",
    "Service",
    "add_pages",
    "add_probes",
    "add_routes",
    "headers_of",
    "origins",
]
