"""The entries of a key as rows. In a key-value folder the entries are the rows."""

from collections.abc import Sequence
from typing import Any

from gnomon.btree.key_arrays import stored_array
from gnomon.btree.key_types import Stored, key_type
from gnomon.shadow.errors import UnknownColumn
from gnomon.shadow.lookup.matches import Hit
from gnomon.shadow.lookup.point import ParsedKey
from gnomon.shadow.metadata import IndexSpec, KeyColumn, View
from gnomon.shadow.tables import stored_partition
from gnomon.shadow.values import has_form, python_values, shown_key
from gnomon.sources import POINTER_COLUMNS


def entry_columns(view: View) -> tuple[str, ...]:
    """The columns of `entry_rows`: the key, the included columns, the partition columns and the pointer. In a key-value
    folder, all columns in their order."""
    stored = [column.name for column in (*view.spec.stored_keys, *view.spec.include)]
    return view.spec.entries.row_columns(stored, view.spec.partitions, view.columns)


def entry_rows(
    view: View, wanted: Sequence[ParsedKey], found: Sequence[Sequence[Hit]], columns: Sequence[str] | None
) -> list[list[dict[str, Any]]]:
    """For each key, a row for each of its hits, with values as in a fetch. If the source has a column with the name of
    a pointer column, the row has the source's. UnknownColumn for a column that the entries do not have."""
    known = entry_columns(view)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise UnknownColumn(f"the entries have no column {', '.join(unknown)}; they have {', '.join(known)}")
    names = list(dict.fromkeys(known if columns is None else columns))
    if not names:
        return [[{} for _ in some] for some in found]
    hits = [(key, hit) for key, some in zip(wanted, found, strict=True) for hit in some]
    values = _columns(view.spec, hits, names)
    rows = iter([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)])
    return [[next(rows) for _ in some] for some in found]


def _columns(spec: IndexSpec, hits: Sequence[tuple[ParsedKey, Hit]], names: Sequence[str]) -> list[list[Any]]:
    made: dict[str, list[Any]] = {
        name: [hit.pointer[i] for _, hit in hits] for i, name in enumerate(POINTER_COLUMNS) if name in names
    }
    of_folders = [stored_partition(hit.file.partition, spec.partition_types) for _, hit in hits]
    for i, column in enumerate(spec.include):
        made[column.name] = _shown([hit.included[i] for _, hit in hits], column)
    for i, column in enumerate(spec.stored_keys):
        made[column.name] = _shown([key.stored[i] for key, _ in hits], column)
    for name in spec.partitions:
        column = KeyColumn(name, spec.partition_type(name))
        made[name] = _shown([values.get(name) for values in of_folders], column)
    return [made[name] for name in names]


def _shown(stored: Sequence[Stored], column: KeyColumn) -> list[Any]:
    """Stored values as rows of the source show them."""
    if has_form(column) or key_type(column.type).decimal:
        return [shown_key(value, column) for value in stored]
    return python_values(stored_array(stored, column.type))
