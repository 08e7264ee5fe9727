"""The answer of `/readyz`: the state of each index. It comes from memory, so storage that hangs delays no probe."""

from collections.abc import Iterable

from gnomon.base import kernel
from gnomon.service.api.shapes import CoverageCounts, IndexReadiness, Readiness
from gnomon.service.errors import NotReady
from gnomon.service.indexes import ServedIndex

SATURATED_SECONDS = 5.0  # after an index refused all requests for this time, the process is not ready


def readiness(indexes: Iterable[ServedIndex]) -> Readiness:
    """The state of each index, by name. NotReady, with the same states, while no index is open or one has refused all
    requests for some seconds. An open index answers from its caches, so a source or a store that fails later does not
    make the process unready."""
    states = {served.place.name: _state(served) for served in indexes}
    if not any(state.open for state in states.values()):
        raise NotReady("no index could be opened yet; they are tried again and again", indexes=states)
    for name, state in states.items():
        if state.saturated_seconds >= SATURATED_SECONDS:
            raise NotReady(f"index {name} has refused all requests for {SATURATED_SECONDS:g} s or more", indexes=states)
    return Readiness(True, states, kernel.COMPILED)


def _state(served: ServedIndex) -> IndexReadiness:
    view = served.index.view if served.is_open else None
    table = view.snapshot.table if view is not None else None
    return IndexReadiness(
        open=view is not None,
        snapshot=view.snapshot.number if view is not None else None,
        table_version=table.version if table is not None else None,
        rows=view.snapshot.rows if view is not None else None,
        source_files=view.source_files if view is not None else None,
        refused=served.refused,
        unreachable=served.unreachable,
        coverage=coverage_of(served),
        coverage_error=served.coverage_error,
        saturated_seconds=round(max(served.threads.saturated_seconds, served.batch_threads.saturated_seconds), 3),
    )


def coverage_of(served: ServedIndex) -> CoverageCounts | None:
    """The coverage of an index at the last listing of its source; None before the first one."""
    known = served.coverage
    if known is None:
        return None
    age_seconds = round(known.age_seconds, 3)
    return CoverageCounts(
        known.snapshot, known.new, known.changed, known.vanished, known.lake_table, known.newer, age_seconds
    )
