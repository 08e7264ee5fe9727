"""The access log: one line for each request, with its client, target and cost. Keys are left out unless the settings
ask for them."""

import datetime as dt
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from gnomon.service.costs import Cost
from gnomon.service.http import NAMES
from gnomon.service.logs.setup import Lines

TARGET_CHARACTERS = 1000
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # requested every few seconds: logged only if they fail
HIDDEN = "-"
MOST_WHOLE = 200  # entries that wait, not formatted yet


@dataclass(slots=True)
class Entry:
    """What is known of a request when it has ended. `began` is in seconds of the clock, `sent` in bytes of the body."""

    scope: Scope
    cost: Cost
    began: float
    seconds: float
    route: str
    index: str
    status: int
    sent: int
    rejected: str | None


class AccessLog:
    """Writes entries as lines of the log. `keys`: whether lines show keys, which may be personal data."""

    def __init__(self, lines: Lines, keys: bool) -> None:
        self._lines, self._keys = lines, keys

    def put(self, entry: Entry) -> None:
        """Log an entry. Its line is made later, in the writing thread. Probes that succeed are left out."""
        if entry.status < 400 and entry.route in PROBES:
            return
        if self._lines.waiting < MOST_WHOLE:
            self._lines.put(lambda: self._members(entry))
        else:  # no reader of the log: an entry that waits must not keep its request in memory
            members = self._members(entry)
            self._lines.put(lambda: members)

    def _members(self, entry: Entry) -> dict[str, Any]:
        scope, cost = entry.scope, entry.cost
        members = {
            "time": dt.datetime.fromtimestamp(entry.began, dt.UTC).isoformat(timespec="milliseconds"),
            "level": "INFO",
            "logger": "gnomon.access",
            "request_id": cost.request_id,
            "client": _client(scope),
            "method": scope["method"],
            "route": entry.route,
            "target": _whole(scope)[:TARGET_CHARACTERS] if self._keys else _without_keys(scope, entry.route),
            "status": entry.status,
            "bytes": entry.sent,
            "microseconds": round(entry.seconds * 1e6),
        }
        if cost.trace is not None:
            members |= cost.trace._asdict()
        if entry.index:
            members["index"] = entry.index
        if cost.stats is not None:
            members |= {"snapshot": cost.stats.snapshot, "keys": cost.keys}
        if cost.count is not None:
            members["count"] = cost.count
        if entry.rejected:
            members["rejected"] = entry.rejected
        return members


def _client(scope: Scope) -> str:
    """The name of the token, else the address."""
    asker = scope["state"].get("asker")
    if asker is not None:
        return str(asker.token.name if asker.token else asker.address)
    return scope["client"][0] if scope.get("client") else HIDDEN


def _whole(scope: Scope) -> str:
    raw, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
    return str((raw + b"?" + query if query else raw)[: TARGET_CHARACTERS + 1].decode("latin-1"))


def _without_keys(scope: Scope, route: str) -> str:
    """The route, and the options in the query. Names and values of all other parameters are hidden, since both may be
    keys."""
    if not scope["query_string"]:
        return route
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return f"{route}?{HIDDEN}"
    told = urlencode([pair if pair[0] in NAMES else (HIDDEN, HIDDEN) for pair in pairs], safe="=,-{}")
    return (f"{route}?{told}" if told else route)[:TARGET_CHARACTERS]
