"""The arguments of a load, checked before any work."""

from collections.abc import Sequence

import pyarrow as pa

from gnomon.jobs.load.row_reader import ERROR, OURS
from gnomon.shadow import Index, UsageError
from gnomon.shadow.metadata import check_names, no_column

HOWS = ("inner", "left")
UNREADABLE = ("fail", "report")


PANDAS, UNNAMED_INDEX = b"pandas", "__index_level_"  # of a table that Arrow made of a frame of pandas


def reader_of(given: object, what: str, expected: str = "an Arrow table with the key columns") -> pa.RecordBatchReader:
    """The rows of an Arrow table, of a reader of batches, or of a frame of pandas or Polars; an index of pandas without
    a name is no column. UsageError for another object."""
    if isinstance(given, pa.RecordBatchReader):
        return given
    try:
        table = pa.table(given)
    except (TypeError, ValueError):  # of pyarrow, for an object that is no table
        raise UsageError(what, expected=expected, found=type(given).__name__) from None
    if PANDAS in (table.schema.metadata or {}):
        table = table.drop_columns([name for name in table.column_names if name.startswith(UNNAMED_INDEX)])
    return table.to_reader()


def check_given(names: Sequence[str], what: str) -> None:
    """Raise UsageError for columns of a sample that share a name, or have a name with the prefix of Gnomon's temporary
    columns."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{what}: it has more than one column {twice[0]}; rename one")
    ours = [name for name in names if name.startswith(OURS)]
    if ours:
        raise UsageError(f"{what}: names that begin with {OURS} are taken; rename {', '.join(ours)}")


def check_sample(names: Sequence[str], how: str) -> None:
    """Raise UsageError for a sample with these columns, or arguments, that cannot be joined with an index."""
    if how not in HOWS:
        raise UsageError(f"how: expected {' or '.join(HOWS)}, found {how!r}")
    check_given(names, "keys")


def check_unreadable(unreadable: str, names: Sequence[str]) -> None:
    """Raise UsageError for an unknown `unreadable`, or where the answer has a column of the name of the errors."""
    if unreadable not in UNREADABLE:
        raise UsageError(f"unreadable: expected {' or '.join(UNREADABLE)}, found {unreadable!r}")
    if unreadable == "report" and ERROR in names:
        raise UsageError(f"there is a column {ERROR} already; rename it, or do not ask for it")


def payload_columns(index: Index, sample: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """The source's columns to read. Only key columns may be in the sample, too: other columns would be ambiguous.
    UsageError for a key-value folder, which has no source."""
    index.spec.entries.check_source(
        "a key-value folder has no source to load from (write_btree made it); join_with_index returns its rows"
    )
    check_names("columns", columns)
    known, keys = index.view.columns, {key.name for key in index.spec.keys}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UsageError(no_column(unknown, known))
    wanted = [name for name in dict.fromkeys(known if columns is None else columns) if name not in keys]
    both = [name for name in wanted if name in sample]
    if both:
        raise UsageError(f"keys: the source has a column {', '.join(both)}, too; rename it, or do not ask for it")
    return wanted
