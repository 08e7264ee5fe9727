"""gnomon get: rows by key, without Spark."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, TextIO

import pyarrow as pa
import typer

from gnomon.commands.config import cache
from gnomon.commands.exit_codes import FOUND, NOT_FOUND
from gnomon.commands.failures import exit_code, one_line
from gnomon.commands.output import IndexFolder, complain, counted, say
from gnomon.shadow import FetchStats, OpenIndex, ShadowError, Trace, UsageError, open_index, to_json
from gnomon.shadow.errors import BTreeError, SourceError
from gnomon.shadow.lookup import RangeQuery
from gnomon.shadow.storage import as_location
from gnomon.shadow.values import csv_fields

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


FILE_PATH, POSITION = "file_path", "pos"  # the columns of Iceberg's position deletes

KeyTexts = Annotated[
    list[str] | None,
    typer.Argument(
        help="A key of several columns is a JSON object or list. - reads keys from standard input, one a line. "
        "Write -- before a key that begins with -."
    ),
]
TableVersion = Annotated[
    str | None, typer.Option(help="Answer as of this version of the Delta table, or snapshot of the Iceberg table.")
]
Newest = Annotated[
    bool, typer.Option("--newest", help="Of a lake table: also read versions that the index does not cover yet.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print the cost and the steps of each key as JSON lines on stderr.")
]


@app.command()
def get(
    index: IndexFolder,
    key: KeyTexts = None,
    keys_file: Annotated[
        str | None, typer.Option("--keys", help="A file of keys, one per line, in the form of KEY.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this partition: dt=2026-01-01. Repeatable; one of several values of a column must match."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to print, separated by commas; default all.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most rows to print of each key.")] = None,
    format: Annotated[
        Literal["jsonl", "csv", "arrow"],
        typer.Option(help="JSON lines; CSV with a header; or an Arrow stream, with the number of each row's key."),
    ] = "jsonl",
    snapshot: Annotated[int | None, typer.Option(help="Answer from this snapshot, not the newest.")] = None,
    table_version: TableVersion = None,
    newest: Newest = False,
    pointers_only: Annotated[
        bool,
        typer.Option(
            "--pointers-only", help="Print where the rows are, as position deletes have it: file_path and pos."
        ),
    ] = False,
    explain: Explain = False,
    prefix: Annotated[
        str | None,
        typer.Option(help="The rows whose key begins with this, in key order; see --from."),
    ] = None,
    low: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="The rows from this key on, in key order. Of a key of several columns a JSON list of its first "
            "values, or its first value.",
        ),
    ] = None,
    high: Annotated[str | None, typer.Option("--to", help="The rows before this key.")] = None,
    inclusive: Annotated[bool, typer.Option("--inclusive", help="With the rows of the key of --to.")] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last key to the first one.")] = False,
    after: Annotated[
        str | None,
        typer.Option(help="Go on after the rows that --limit ended with: the text that was printed."),
    ] = None,
    count: Annotated[
        bool,
        typer.Option("--count", help="Only print the number of rows, from the index alone."),
    ] = False,
) -> int:
    """Print each row of the keys, or of a range of keys, as a JSON line. Exit code 1 when a key has no row; the rows of
    the others are printed."""
    opened = _opened(index, snapshot, table_version, newest)
    if prefix is not None or low is not None or high is not None or reverse or after is not None or count:
        if key or keys_file or pointers_only or explain:
            raise UsageError("get: expected keys, or a range without --keys, --pointers-only and --explain")
        first, last, begin = (
            None if text is None else parse_key_beginning(text, opened) for text in (low, high, prefix)
        )
        asked = RangeQuery(first, last, begin, inclusive, parse_where(where or []) or None, reverse, limit, after)
        return _print_range(opened, asked, columns.split(",") if columns else None, format, count)
    if pointers_only and (columns or limit or explain):
        raise UsageError("get: --pointers-only reads no rows; expected no --columns, --limit or --explain with it")
    conditions = parse_where(where or [])
    names = columns.split(",") if columns else None
    texts = list(key_texts(key or [], keys_file))
    if not texts and keys_file is None and key != ["-"]:
        raise UsageError("get: expected one key or more, - for those of standard input, or --keys FILE")
    keys = [parse_key_argument(text, opened) for text in texts]
    opened.check(keys, names, conditions)
    if pointers_only:
        return _print_pointers(opened, texts, keys, conditions, format)
    if format == "arrow":
        return _print_arrow(opened, texts, keys, names, conditions, limit)
    write = csv_writer(names or opened.view.columns) if format == "csv" else _say_json
    code = FOUND
    for text, parsed in zip(texts, keys, strict=True):
        stats = FetchStats(trace=Trace() if explain else None)
        try:
            rows = opened.fetch(parsed, names, conditions, stats, limit)
        except (ShadowError, BTreeError, SourceError, OSError) as error:
            complain(one_line(error))
            code = exit_code(error)
            continue
        for row in rows:
            write(row)
        if not rows:
            _complain_absent(opened, text, parsed, conditions)
            code = max(code, NOT_FOUND)
        if explain:
            typer.echo(to_json({"key": text, **stats.to_json()}), err=True)
    return code


def _opened(index: str, snapshot: int | None, table_version: str | None, newest: bool) -> OpenIndex:
    """The index at the snapshot or version that was asked for."""
    if newest and (snapshot is not None or table_version is not None):
        raise UsageError("get: expected one of --newest, --snapshot and --table-version")
    return OpenIndex.of(open_index(index, snapshot, table_version=table_version, newest=newest, **cache()))


def key_texts(given: list[str], keys_file: str | None) -> Iterator[str]:
    """Yield the keys as text: first the arguments, then the lines of the file. Empty lines are skipped. UsageError for
    a text that is not UTF-8."""
    for text in given:
        if text == "-" and len(given) == 1:
            yield from _lines(sys.stdin, "standard input")
        else:
            yield _utf8(text, "a key")
    if keys_file is not None:
        path = Path(as_location(keys_file))
        if not os.path.isfile(path):
            raise UsageError(f"--keys: {keys_file}: no such file on this machine; expected one key a line")
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from _lines(lines, f"--keys: {keys_file}")


def _lines(lines: Iterable[str], where: str) -> Iterator[str]:
    try:
        for number, line in enumerate(lines, 1):
            if text := line.rstrip("\r\n"):
                yield _utf8(text, f"{where}: line {number}")
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not UTF-8; expected one key a line") from None


def _utf8(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python keeps other bytes as surrogates
        raise UsageError(f"{what}: not UTF-8; expected one key a line") from None
    return text


def _say_json(row: Mapping[str, object]) -> None:
    say(to_json(row))


def csv_writer(columns: Sequence[str], file: TextIO | None = None) -> Callable[[Mapping[str, object]], None]:
    """A function that prints rows, or writes them to a file, as CSV (RFC 4180), the header first. Nulls are empty
    fields; lists and records are JSON."""
    out = csv.writer(file or sys.stdout, lineterminator="\n")
    out.writerow(columns)

    def write(row: Mapping[str, object]) -> None:
        out.writerow(csv_fields(row, columns))

    return write


def _print_arrow(
    opened: OpenIndex,
    texts: Sequence[str],
    keys: Sequence[object],
    names: Sequence[str] | None,
    conditions: Mapping[str, Sequence[str]],
    limit: int | None,
) -> int:
    """Print all rows as one Arrow stream (`Index.table_many`)."""
    table = opened.table_many(keys, names, conditions, limit)
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as out:
        out.write_table(table)
    found = set(table.column(0).to_pylist())
    absent = [number for number in range(len(texts)) if number not in found]
    for number in absent:
        _complain_absent(opened, texts[number], keys[number], conditions)
    return NOT_FOUND if absent else FOUND


def _print_range(opened: OpenIndex, asked: RangeQuery, names: Sequence[str] | None, format: str, count: bool) -> int:
    """Print the rows of a range, or their number. After `limit` rows the cursor is printed on stderr."""
    if count:
        number = opened.count(asked.low, asked.high, prefix=asked.prefix, inclusive=asked.inclusive, where=asked.where)
        say(str(number))
        return FOUND if number else NOT_FOUND
    printed, cursor = 0, None
    if format == "arrow":
        tables = opened.range_tables(asked, names)
        if (first := next(tables, None)) is not None:
            with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as out:
                for table in chain([first], tables):
                    out.write_table(table.cast(first.schema))
                    printed += table.num_rows
    else:
        write = csv_writer(names or opened.view.columns) if format == "csv" else _say_json
        for page in opened.range_pages(asked, names):
            for row in page.rows:
                write(row)
            printed, cursor = printed + len(page.rows), page.cursor
    if not printed:
        complain(f"not found: no key in the range (snapshot {opened.view.snapshot.number})")
    elif printed == asked.limit and cursor is not None:
        complain(f"the rows after these: --after {cursor}")
    return FOUND if printed else NOT_FOUND


def _print_pointers(
    opened: OpenIndex,
    texts: Sequence[str],
    keys: Sequence[object],
    conditions: Mapping[str, Sequence[str]],
    format: str,
) -> int:
    """Print file and number of each row, sorted, as `Index.positions` has them."""
    found, code = opened.positions(keys, conditions), FOUND
    rows = {one for of_key in found for one in of_key}
    for place, of_key in enumerate(found):
        if not of_key:
            _complain_absent(opened, texts[place], keys[place], conditions)
            code = NOT_FOUND
    if format == "arrow":
        paths, numbers = ([row[i] for row in sorted(rows)] for i in (0, 1))
        table = pa.table({FILE_PATH: pa.array(paths, pa.string()), POSITION: pa.array(numbers, pa.int64())})
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as out:
            out.write_table(table)
        return code
    write = csv_writer([FILE_PATH, POSITION]) if format == "csv" else _say_json
    for path, number in sorted(rows):
        write({FILE_PATH: path, POSITION: number})
    return code


def _complain_absent(opened: OpenIndex, text: str, key: object, conditions: Mapping[str, Sequence[str]]) -> None:
    view, what = opened.view, ""
    if view.spec.source.location:
        what = f" in {counted(view.source_files, 'file')} of {view.spec.source.location}"
    covers = f"snapshot {view.snapshot.number} covers {view.snapshot.rows:,} rows{what}"
    if conditions:
        rows = sum(view.snapshot.partitions[name] for name in opened.partitions_asked(key, conditions))
        where = ", ".join(f"{name}={value}" for name, values in conditions.items() for value in values)
        covers += f"; only the {rows:,} rows where {where} were asked"
    complain(f"not found: {text} ({covers})")


def parse_where(conditions: list[str]) -> dict[str, list[str]]:
    """The values of each partition column, from column=value texts."""
    where: dict[str, list[str]] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals:
            raise UsageError(f"--where: expected column=value, found {column!r}")
        where.setdefault(column, []).append(value)
    return where


def parse_key_beginning(text: str, index: OpenIndex) -> object:
    """The first values of a key from the command line: a JSON list, or the first value."""
    if len(index.spec.keys) == 1 or not text.startswith("["):
        return text
    try:
        return tuple(json.loads(text))
    except ValueError:
        raise UsageError(f"expected a JSON list of the first values of a key, found {text!r}") from None


def parse_key_argument(text: str, index: OpenIndex) -> object:
    """A key from the command line: the value, or a JSON object or list where the key has several columns."""
    if len(index.spec.keys) == 1:
        return text
    names = ", ".join(column.name for column in index.spec.keys)
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict | list):
        raise UsageError(f"the key has the columns {names}: expected a JSON object or list, found {text!r}")
    return key
