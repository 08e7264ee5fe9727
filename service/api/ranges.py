"""Answers to ranges of keys: the rows in key order, page by page, in JSON and in Arrow.

A page ends with a link to the next one, which has a cursor: the key of the last row, its file and its place there. So
an index that hides columns of its key, or partition columns, answers no ranges. A file outside of the source's folder
is in the cursor by a digest of its path, since no answer names a folder of the server."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from msgspec import UNSET

from gnomon.service import costs
from gnomon.service.api.answers import COUNT, csv_table, stream
from gnomon.service.api.query import Question, answered, bounded, check_length, explanation
from gnomon.service.api.responses import CSV, JSON, Sealed, sealed
from gnomon.service.api.shapes import RangeAnswer
from gnomon.service.errors import AnswerTooLarge, BadRequest, encode
from gnomon.service.http import Options, RangeOptions, cut
from gnomon.service.indexes import ServedIndex, visible
from gnomon.service.memory import Hold
from gnomon.shadow import RangeQuery, UsageError
from gnomon.shadow.fetch import Query
from gnomon.shadow.index import FirstPage
from gnomon.shadow.lookup import Cursor
from gnomon.shadow.metadata import View
from gnomon.shadow.storage import is_absolute

PAGE_ROWS = 100  # rows of a page where the query has no limit
NEXT = b"gnomon.next"

RANGE = (
    "An Arrow IPC stream with the rows of a range, in the types of the source. The schema's metadata has "
    "`gnomon.count`, `gnomon.snapshot` and, if another page follows, `gnomon.next`, as JSON."
)

Rows = TypeVar("Rows")
Following = Callable[[str], str]  # from the cursor of a page to the path and query of the next one


class Page(NamedTuple):
    """The answer, and the path and query of the next page; None for the last one."""

    answer: Sealed
    next: str | None


def page_rows(served: ServedIndex, options: Options) -> int:
    """The most rows of a page. BadRequest for a limit of 0."""
    if options.limit == 0:
        raise BadRequest("_limit: a page of a range has at least 1 row")
    return min(PAGE_ROWS if options.limit is None else options.limit, served.max_rows)


def page_of(
    served: ServedIndex, media_type: str, options: Options, encoding: str, following: Following, hold: Hold
) -> Page:
    """A page of a range. KeyNotFound where no row is in the range; after a cursor, the page is then empty."""

    def work(question: Question) -> tuple[bytes, str | None]:
        return _made(
            question, media_type, replace(_asked(question, options), limit=page_rows(served, options)), following
        )

    body, link = answered(served, replace(options, limit=None), hold, work)
    return Page(sealed(body, encoding, hold), link)


def has_page(served: ServedIndex, options: Options, hold: Hold) -> None:
    """KeyNotFound where `page_of` raises it. The source is not read."""
    page_rows(served, options)

    def work(question: Question) -> None:
        asked = _asked(question, options)
        found = question.ask(question.index.has_any, asked, question.stats)
        costs.note(question.stats, 0, None)
        if not found and asked.after is None:
            raise question.not_found(None)

    answered(served, options, hold, work)


def _asked(question: Question, options: Options) -> RangeQuery:
    """The range of a query. BadRequest for ends that no key can have, and where the index hides a column that answers
    would show."""
    given, view = options.range or RangeOptions(), question.view
    names = [*(column.name for column in view.spec.keys), *view.spec.partitions]
    if visible(question.place, names) != names:
        raise BadRequest(
            "this index answers no ranges of keys: the order of the rows and the link to the next page would show "
            "columns that it hides"
        )
    low, high, prefix = (
        _end(question, name, texts)
        for name, texts in (("_from", given.low), ("_to", given.high), ("_prefix", given.prefix))
    )
    after = None if given.after is None else _resolved(given.after, view)
    return RangeQuery(low, high, prefix, given.inclusive, question.where, given.reverse, None, after)


def _end(question: Question, name: str, texts: list[str] | None) -> tuple[str, ...] | None:
    """The first values of a key, as texts."""
    if texts is None:
        return None
    keys = question.spec.keys
    if len(texts) > len(keys):
        named = ", ".join(column.name for column in keys)
        raise BadRequest(f"{name}: the key has the columns {named}; found {len(texts)} values")
    for column, text in zip(keys, texts, strict=False):
        check_length(column, text, question.place, question.served.max_key_bytes)
    return tuple(texts)


def _made(question: Question, media_type: str, asked: RangeQuery, following: Following) -> tuple[bytes, str | None]:
    """The answer with a page, and the path and query of the next one."""
    if media_type == JSON:
        page, link = _read(question, question.index.first_page, asked, following)
        answer = RangeAnswer(page.rows, page.row_count, **question.of_snapshot, next=link or UNSET)
        if question.options.explain:
            answer.explain = explanation(question)
        with costs.encoding():
            return bounded(encode(answer), question.served), link
    if media_type == CSV:
        page, link = _read(question, question.index.first_page, asked, following)
        return csv_table(question, page.rows), link
    table, link = _read(question, question.index.first_table, asked, following)
    return stream(question, table.rows, {COUNT: table.row_count, **({NEXT: link} if link else {})}), link


def _read(
    question: Question,
    first: Callable[[RangeQuery, Query], FirstPage[Rows]],
    asked: RangeQuery,
    following: Following,
) -> tuple[FirstPage[Rows], str | None]:
    """A page, and the path and query of the next one."""
    try:
        page = question.ask(first, asked, question.query([]))
    except AnswerTooLarge:
        raise AnswerTooLarge(
            f"the rows of this page take more than {question.served.max_answer_bytes:,} bytes (setting "
            "max_answer_bytes); ask for fewer rows with _limit=, or fewer columns with _columns="
        ) from None
    costs.note(question.stats, page.key_count, page.row_count)
    if not page.row_count and asked.after is None:
        raise question.not_found(None)
    if page.is_last:
        return page, None
    if page.cursor is None:
        raise BadRequest(
            f"the range has more than {page.row_count} rows, and the rows of a key-value folder come in one page: ask "
            f"for a narrower range, or up to {question.served.max_rows} rows with _limit= (setting max_rows)"
        )
    return page, following(_shown(page.cursor).text(question.spec))


def _shown(cursor: Cursor) -> Cursor:
    """A cursor without a folder of the server."""
    return cursor._replace(file=_digest(cursor.file)) if is_absolute(cursor.file) else cursor


def _resolved(text: str, view: View) -> str:
    """The cursor of a query, with the path of its file. BadRequest for a text that no page ended with."""
    try:
        cursor = Cursor.of_text(text, view.spec)
    except UsageError:
        raise BadRequest(f"_after: expected the cursor in the next of a page, found {cut(text)}") from None
    if cursor.file not in view.covered:
        elsewhere = (path for path in view.covered if is_absolute(path) and _digest(path) == cursor.file)
        cursor = cursor._replace(file=next(elsewhere, cursor.file))
    return cursor.text(view.spec)


def _digest(path: str) -> str:
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
