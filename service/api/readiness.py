"""The answer of `/readyz`: the state of each index. It comes from memory, so storage that hangs delays no probe."""

from collections.abc import Iterable
from typing import Any

from gnomon.base import kernel
from gnomon.service.errors import NotReady
from gnomon.service.indexes import ServedIndex

SATURATED_SECONDS = 5.0  # after an index refused all requests for this time, the process is not ready


def readiness(indexes: Iterable[ServedIndex]) -> dict[str, Any]:
    """The state of each index, by name. NotReady, with the same states, while no index is open or one has refused all
    requests for some seconds. An open index answers from its caches, so a source or a store that fails later does not
    make the process unready."""
    states = {served.place.name: _state(served) for served in indexes}
    if not any(state["open"] for state in states.values()):
        raise NotReady("no index could be opened yet; they are tried again and again", indexes=states)
    for name, state in states.items():
        if state["saturated_seconds"] >= SATURATED_SECONDS:
            raise NotReady(f"index {name} has refused all requests for {SATURATED_SECONDS:g} s or more", indexes=states)
    return {"ready": True, "indexes": states, "compiled": kernel.COMPILED}


def _state(served: ServedIndex) -> dict[str, Any]:
    view = served.index.view if served.is_open else None
    return {
        "open": view is not None,
        "snapshot": view.snapshot.number if view is not None else None,
        "table_version": view.snapshot.table.version if view is not None and view.snapshot.table is not None else None,
        "rows": view.snapshot.rows if view is not None else None,
        "source_files": view.source_files if view is not None else None,
        "refused": served.refused,
        "unreachable": served.unreachable,
        "coverage": coverage_told(served),
        "coverage_error": served.coverage_error,
        "saturated_seconds": round(max(served.threads.saturated_seconds, served.batch_threads.saturated_seconds), 3),
    }


def coverage_told(served: ServedIndex) -> dict[str, Any] | None:
    """The coverage of an index at the last listing of its source; None before the first one."""
    coverage = served.coverage
    if coverage is None:
        return None
    return {
        "snapshot": coverage.snapshot,
        "new": coverage.new,
        "changed": coverage.changed,
        "vanished": coverage.vanished,
        "lake_table": coverage.lake_table,
        "newer": coverage.newer,
        "age_seconds": round(coverage.age_seconds, 3),
    }
