"""Keys and options to answers. All of it blocks on files, so it runs in the service's threads."""

from collections.abc import Sequence
from typing import Any

from service import costs
from service.errors import BadRequest, KeyNotFound, encode, problem
from service.keys import check_length, key_given, key_shown
from service.requests import Options
from service.served import ServedIndex
from shadow import BTreeError, FetchStats, Index, KeyTypeError, SourceError, StalePointer, UsageError
from shadow.answers import Answer
from shadow.errors import IndexFileGone
from shadow.lookup import bucket_number
from shadow.view import View

# Failures of one file, hence of some keys of a batch; any other failure is of the whole batch.
OF_ONE_FILE = (SourceError, BTreeError, IndexFileGone, OSError)


def rows_of(served: ServedIndex, key: object, options: Options) -> bytes:
    """The answer to one key. KeyNotFound says what the snapshot covers."""
    index = served.at(options.snapshot)
    check_length(key, served.max_key_bytes)
    shown = key_shown(key, index.spec)
    view, stats = index.view, FetchStats()
    [found] = _fetch(served, index, [key], options, stats)
    costs.note(stats, 1, found.count)
    if not found.count:
        raise _not_found(shown, view if view.snapshot.number == stats.snapshot else index.view)
    answer = {"key": shown, "count": found.count, "rows": found.rows, "snapshot": stats.snapshot}
    if options.explain:
        answer["explain"] = {"bucket": bucket_number(key, index.spec), **_explain(stats)}
    with costs.encoding():
        return encode(answer)


def has_rows(served: ServedIndex, key: object, options: Options) -> None:
    """KeyNotFound unless the index, without a look at the source, has the key."""
    index = served.at(options.snapshot)
    check_length(key, served.max_key_bytes)
    shown = key_shown(key, index.spec)
    view = index.view
    if not index.contains(key, options.where):
        raise _not_found(shown, view)


def rows_of_each(served: ServedIndex, keys: Sequence[Any], options: Options, instance: str) -> bytes:
    """The answer to a batch: a result for each key, in the order asked; a key that fails carries its own error."""
    index, stats = served.at(options.snapshot), FetchStats()
    results: list[dict[str, Any]] = []
    places: list[int] = []
    for place, key in enumerate(keys):
        try:
            check_length(key, served.max_key_bytes)
            results.append({"key": key_shown(key, index.spec)})
            places.append(place)
        except (BadRequest, UsageError, KeyTypeError) as error:
            results.append({"key": key_given(key, index.spec), "error": problem(error, instance, served.roots)})
    answers = _fetch_each(served, index, [keys[place] for place in places], options, stats)
    costs.note(stats, len(places), sum(found.count for found in answers if not isinstance(found, Exception)))
    for place, found in zip(places, answers, strict=True):
        if isinstance(found, Exception):
            results[place]["error"] = problem(found, instance, served.roots)
        else:
            results[place] |= {"count": found.count, "rows": found.rows}
    answer: dict[str, Any] = {"results": results, "snapshot": stats.snapshot}
    if options.explain:
        answer["explain"] = _explain(stats)
    with costs.encoding():
        return encode(answer)


def _fetch(served: ServedIndex, index: Index, keys: list[Any], options: Options, stats: FetchStats) -> list[Answer]:
    """The rows of each key. A stale pointer may be mended by a snapshot that was committed since the last look."""
    try:
        return index.answer_many(keys, options.columns, options.where, options.limit, stats)
    except StalePointer:
        if index is not served.index or not served.moved_from(stats.snapshot):
            raise
        return index.answer_many(keys, options.columns, options.where, options.limit, stats)


def _fetch_each(
    served: ServedIndex, index: Index, keys: list[Any], options: Options, stats: FetchStats
) -> Sequence[Answer | Exception]:
    """The rows of each key, or why they cannot be had; all from one snapshot."""
    try:
        return _fetch(served, index, keys, options, stats)
    except OF_ONE_FILE as error:
        number = index.view.snapshot.number
        answers = _halves(served.pinned(number), keys, options, stats, error)
        stats.snapshot = number  # a look-up that fails leaves none
        return answers


def _halves(
    index: Index, keys: list[Any], options: Options, stats: FetchStats, error: Exception
) -> list[Answer | Exception]:
    """Keys that failed together, taken apart until it is known which of them fail."""
    if len(keys) == 1:
        return [error]
    answers: list[Answer | Exception] = []
    for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
        files = stats.source_files
        try:
            answers += index.answer_many(half, options.columns, options.where, options.limit, stats)
            stats.source_files += files
        except OF_ONE_FILE as failure:
            answers += _halves(index, half, options, stats, failure)
    return answers


def _not_found(shown: dict[str, Any], view: View) -> KeyNotFound:
    number, rows, files = view.snapshot.number, view.snapshot.rows, view.source_files
    return KeyNotFound(
        f"no row has this key in snapshot {number}, which covers {rows} rows of {files} source files",
        key=shown,
        snapshot=number,
        covered={"rows": rows, "source_files": files},
    )


def _explain(stats: FetchStats) -> dict[str, Any]:
    index, source = stats.index, stats.source
    return {
        "index": {
            "nodes": index.nodes,
            "reads": index.reads,
            "bytes": index.bytes,
            "filter_checks": index.filter_checks,
            "filter_bytes": index.filter_bytes,
            "microseconds": stats.lookup_us,
        },
        "source": {
            "files": stats.source_files,
            "reads": source.reads,
            "bytes": source.bytes,
            "page_map_reads": source.page_maps.reads,
            "page_map_bytes": source.page_maps.bytes,
            "microseconds": stats.fetch_us,
        },
    }
