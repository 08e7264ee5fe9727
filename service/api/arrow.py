"""Answers as Arrow IPC streams, with rows in the types of the source. This code runs in the threads of an index.

The schema's metadata has the members that a JSON answer has besides its rows, as JSON text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from gnomon.service import costs
from gnomon.service.api.explain import explanation
from gnomon.service.api.negotiation import ARROW
from gnomon.service.api.query import Question, answered, bounded
from gnomon.service.errors import BadRequest, encode
from gnomon.service.http import Options
from gnomon.service.indexes import ServedIndex
from gnomon.service.memory import Hold
from gnomon.shadow import KeyTypeError
from gnomon.shadow.lookup import ParsedKey

SNAPSHOT, KEY, COUNT, COUNTS, EXPLAIN = (
    b"gnomon." + name for name in (b"snapshot", b"key", b"count", b"counts", b"explain")
)

ROWS = (
    "An Arrow IPC stream with the rows, in the types of the source. The schema's metadata has `gnomon.key`, "
    "`gnomon.count` and `gnomon.snapshot`, as JSON."
)
BATCH = (
    "An Arrow IPC stream with the rows of all keys, in the types of the source; the first column, `key_number`, is the "
    "place of the row's key in the batch, from 0. The schema's metadata has `gnomon.counts`, for each key the number "
    "of its rows, and `gnomon.snapshot`, as JSON. A key that fails fails the batch."
)


class WrongKey(BadRequest):
    """A key of a batch is invalid. `members`, for its problem, has the place of the key in the batch, from 0."""

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(f"key {place} of the batch: {error}")
        self.members = {"key_number": place}


def rows_of(served: ServedIndex, key: object, options: Options, hold: Hold) -> bytes:
    """The rows of one key. KeyNotFound says what the snapshot covers."""

    def work(question: Question) -> bytes:
        wanted = question.read(key)
        question.trace()
        return question.answer(ARROW, wanted, lambda: _found(question, wanted, key))

    return _held(hold, answered(served, options, hold, work))


def _found(question: Question, wanted: ParsedKey, key: object) -> tuple[bytes, int]:
    """The answer to a key, and the number of its rows."""
    table = _table(question, [key])
    [count] = _counts(table)
    if not count:
        raise question.not_found(wanted)
    members = {KEY: question.shown(wanted), COUNT: count}
    return _stream(question, table.drop_columns([table.column_names[0]]), members, wanted), count


def _held(hold: Hold, body: bytes) -> bytes:
    hold.shrink_to(len(body))
    return body


def rows_of_each(served: ServedIndex, keys: Sequence[Any], options: Options, hold: Hold) -> bytes:
    """The rows of a batch, in the order of its keys; the first column is the place of the key. If one key fails, the
    batch fails, since a table of rows cannot contain an error."""

    def work(question: Question) -> bytes:
        for place, key in enumerate(keys):
            try:
                question.read(key)
            except (BadRequest, KeyTypeError) as error:
                raise WrongKey(place, error) from None
        table = _table(question, keys)
        return _stream(question, table, {COUNTS: _counts(table)})

    return _held(hold, answered(served, options, hold, work))


def _table(question: Question, keys: Sequence[object]) -> pa.Table:
    table = question.ask(question.index.table, question.query(keys))
    costs.note(question.stats, len(keys), sum(_counts(table)))
    return table


def _counts(table: pa.Table) -> list[int]:
    """The number of rows of each key, including rows beyond a limit."""
    counts: list[int] = json.loads(table.schema.metadata[COUNTS])
    return counts


def _stream(question: Question, table: pa.Table, told: Mapping[bytes, Any], key: ParsedKey | None = None) -> bytes:
    """The table as one stream, with the other members of the answer."""
    told = {SNAPSHOT: question.view.snapshot.number, **told}
    if question.options.explain:
        told = {**told, EXPLAIN: explanation(question, key)}
    with costs.encoding():
        table = table.combine_chunks().replace_schema_metadata({name: encode(value) for name, value in told.items()})
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return bounded(out.getvalue().to_pybytes(), question.served)
