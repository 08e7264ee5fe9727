"""Keys as requests give them and as answers show them."""

from collections.abc import Mapping
from typing import Any, NoReturn

from gnomon.service.errors import BadRequest
from gnomon.service.http import NAMES, cut
from gnomon.service.indexes import Place, visible
from gnomon.shadow import KeyTypeError
from gnomon.shadow.lookup import ParsedKey, parse_key
from gnomon.shadow.metadata import IndexSpec, KeyColumn
from gnomon.shadow.values import shown_key

_KINDS: dict[type, str] = {list: "a list", dict: "an object"}


def read_key(key: object, spec: IndexSpec, place: Place, most_bytes: int) -> ParsedKey:
    """A key in the form of the index. BadRequest and KeyTypeError name the column, what is expected and what was found;
    a column that the index does not show is not named."""
    values = _values(key, spec, place)
    for column, value in values:
        kind = _KINDS.get(type(value))
        if kind is not None:
            _refuse(column, place, f"expected {column.source_type or column.type}, found {kind}")
        if isinstance(value, str) and len(value) * 4 > most_bytes:  # at most 4 bytes a character, seldom counted
            size = len(value.encode("utf-8", "surrogatepass"))
            if size > most_bytes:
                _refuse(column, place, f"a value of {size} bytes; at most {most_bytes} (setting max_key_bytes)")
    try:
        return parse_key([value for _, value in values], spec)
    except KeyTypeError as error:
        if not visible(place, [error.column]):
            raise BadRequest("the key has a value that is not of its column's type") from None
        raise


def _values(key: object, spec: IndexSpec, place: Place) -> list[tuple[KeyColumn, object]]:
    """Each key column with the value that is given for it."""
    names = [column.name for column in spec.keys]
    if isinstance(key, Mapping):
        if key.keys() != set(names):
            found, shown = cut(", ".join(key)) or "none", visible(place, names)
            hint = f"; ask like /rows?{shown[0]}=VALUE" if shown and not key else ""
            if taken := [name for name in shown if name in NAMES]:
                hint = f"; {', '.join(taken)} is an option of every query: ask by POST"
            named = _named(spec, place)
            raise BadRequest(f"the key needs the columns {named}; found {found}{hint}")
        return [(column, key[column.name]) for column in spec.keys]
    values = key if isinstance(key, list) else [key]
    if len(values) != len(names):
        raise BadRequest(f"the key has the columns {_named(spec, place)}; found {len(values)} values")
    return list(zip(spec.keys, values, strict=True))


def _named(spec: IndexSpec, place: Place) -> str:
    """The names of the shown key columns, and "others" if some are hidden."""
    shown = visible(place, [column.name for column in spec.keys])
    return ", ".join([*shown, "others"] if len(shown) < len(spec.keys) else shown)


def _refuse(column: KeyColumn, place: Place, why: str) -> NoReturn:
    raise BadRequest(f"key column {column.name}: {why}" if visible(place, [column.name]) else f"the key: {why}")


def key_shown(wanted: ParsedKey, spec: IndexSpec, place: Place) -> dict[str, Any]:
    """A key by column name. Each value has the form of rows in JSON, whatever form the request used. Hidden columns are
    left out."""
    stored, partitions = iter(wanted.stored), dict(wanted.where)
    values = {
        column.name: shown_key(partitions[column.name] if column.partition else next(stored), column)
        for column in spec.keys
    }
    return {name: values[name] for name in visible(place, values)}


def key_given(key: object, spec: IndexSpec, place: Place) -> object:
    """An invalid key, which `key_shown` cannot show: the values of the request, with long texts cut, by column name if
    their number is right."""
    if isinstance(key, Mapping):
        return {cut(name): _bounded(value) for name, value in key.items()}
    values = key if isinstance(key, list) else [key]
    if len(values) != len(spec.keys):
        return [_bounded(value) for value in values[: len(spec.keys) + 1]] if isinstance(key, list) else _bounded(key)
    given = {column.name: _bounded(value) for column, value in zip(spec.keys, values, strict=True)}
    return {name: given[name] for name in visible(place, given)}


def _bounded(value: object) -> object:
    """A value as an error repeats it: a long text is cut; a list or an object is only named as such."""
    return _KINDS.get(type(value)) or (cut(value) if isinstance(value, str) else value)
