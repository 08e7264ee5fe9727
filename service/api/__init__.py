"""The routes and their answers.

- `routes`        the handlers
- `query`         a request for rows, run at one snapshot
- `keys`          keys as requests give them and answers show them
- `json_answers`  answers in JSON
- `arrow`         answers as Arrow streams
- `at_hand`       answers from memory alone, without a thread
- `responses`     answers that hold memory until they are sent
- `negotiation`   the media type of an answer
- `explain`       the cost of an answer
- `describe`      the description of an index
- `readiness`     `/readyz`
- `pages`         the page at `/`
- `headers`       the headers of every answer
- `shapes`        the shapes of answers
- `openapi`       the OpenAPI document, with the examples of `examples.json`
"""

from gnomon.service.api.headers import CORS, headers_of, origins
from gnomon.service.api.openapi import document
from gnomon.service.api.pages import add_pages
from gnomon.service.api.routes import Service, add_routes

__all__ = [
    "CORS",
    "Service",
    "add_pages",
    "add_routes",
    "document",
    "headers_of",
    "origins",
]
