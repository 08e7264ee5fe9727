"""Filters of Iceberg's REST protocol as trees that tell which files may hold a matching row.

A filter is parsed against a schema. Negations are pushed down to the predicates, chains of AND and of OR become one
node each. A predicate that cannot be judged (a transform of a column, a literal of another type, a column that the
schema does not have) is one that any row may match: it never leaves a file out. Values are in stored form
(`gnomon.btree.key_types`), also UUIDs (16 bytes) and times (microseconds).

The format is that of Iceberg's REST catalog, https://iceberg.apache.org/rest-catalog-spec/ (schema `Expression`)."""

import math
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from itertools import product
from typing import Any

from pyiceberg import types as iceberg_types
from pyiceberg.schema import Schema

from gnomon.shadow.errors import KeyTypeError, UsageError
from gnomon.shadow.metadata import KeyColumn
from gnomon.shadow.values import read_key

MOST_VALUES = 1_000_000  # compared for one AND
MOST_ALTERNATIVES = 1_000  # of one filter; beyond them a side of an AND is left out, which only selects more
LONGEST_DECIMAL = 100  # characters of a literal
EXACT = Context(prec=2 * LONGEST_DECIMAL)
DEEPEST = 100  # AND and OR in turn; a part that is deeper is not judged
REAL = (iceberg_types.FloatType, iceberg_types.DoubleType)

NEGATED = {
    "eq": "not-eq",
    "in": "not-in",
    "is-null": "not-null",
    "is-nan": "not-nan",
    "lt": "gt-eq",
    "gt": "lt-eq",
    "starts-with": "not-starts-with",
}
NEGATED |= {after: before for before, after in NEGATED.items()}
WITHOUT_VALUE = ("is-null", "not-null", "is-nan", "not-nan")
WITH_VALUES = ("in", "not-in")


class InvalidPlan(UsageError):
    """A request for a plan that the protocol does not allow."""


Stored = Any  # a value in stored form
Values = frozenset[Stored]
# The values that a row must have to match, by field id; any value where a field is not named.
Alternative = Mapping[int, Values]


@dataclass(frozen=True)
class Predicate:
    """One predicate on a column: `op` as the protocol names it, the column's field id and type. `literals` has the
    values as they were given, in JSON, by the stored ones. `json` is the predicate as it was asked. `is_top` says that
    the column is not within a struct, a list or a map, `is_single` that a row has one value of it."""

    op: str
    field_id: int
    type: iceberg_types.PrimitiveType
    literals: Mapping[Stored, Any]
    json: Any
    is_top: bool = True
    is_single: bool = True

    @property
    def values(self) -> Collection[Stored]:
        return self.literals.keys()

    @cached_property
    def ordered(self) -> Sequence[Any]:
        """The values in their order."""
        return sorted(self.literals)

    @property
    def value(self) -> Any:
        """The only literal."""
        return next(iter(self.literals))

    def among(self, values: Collection[Stored]) -> "Predicate | bool":
        """The predicate for rows whose value is one of these."""
        if self.op not in ("eq", "in") or not self.is_top:
            return self
        left = {value: self.literals[value] for value in values if value in self.literals}
        if not left or len(left) == len(self.literals):
            return self if left else False
        asked = self.json["child"] if self.json["type"] == "not" else self.json
        return replace(self, literals=left, json={"type": "in", "term": asked["term"], "values": list(left.values())})


@dataclass(frozen=True)
class Junction:
    """AND (`is_and`) or OR of several filters."""

    is_and: bool
    parts: tuple["Filter", ...]


@dataclass(frozen=True)
class Unjudged:
    """A predicate that any row may match."""

    json: Any


Filter = Predicate | Junction | Unjudged | bool


def parse(json: Any, schema: Schema, case_sensitive: bool = True) -> Filter:
    """The filter of a request; None is no filter. InvalidPlan for what is no expression of the protocol."""
    if json is None:
        return True
    # Post-order, without recursion: Spark makes chains of thousands of ORs.
    results: list[tuple[Filter, int]] = []  # each with the depth of its junctions
    work: list[tuple[Any, bool, bool]] = [(json, False, False)]  # node, negated, its children are done
    while work:
        node, negated, is_done = work.pop()
        kind = _type_of(node)
        if kind == "not":
            work.append((_child(node, "child"), not negated, False))
        elif kind not in ("and", "or"):
            is_constant = kind in ("true", "false", "literal")
            leaf = _constant(node, negated) if is_constant else _predicate(node, kind, negated, schema, case_sensitive)
            results.append((leaf, 0))
        elif is_done:
            right, left = results.pop(), results.pop()
            made = junction((kind == "and") != negated, (left[0], right[0]))
            depth = max(_depth(made, *part) for part in (left, right))
            if depth > DEEPEST:
                made, depth = Unjudged({"type": "not", "child": node} if negated else node), 0
            results.append((made, depth))
        else:
            work.append((node, negated, True))
            work.append((_child(node, "right"), negated, False))
            work.append((_child(node, "left"), negated, False))
    return results[0][0]


def _depth(made: Filter, part: Filter, depth: int) -> int:
    """The depth of a junction by one of its parts, whose own parts it takes if it is of the same kind."""
    is_same = isinstance(made, Junction) and isinstance(part, Junction) and made.is_and is part.is_and
    return depth if is_same else depth + 1


def junction(is_and: bool, parts: Iterable[Filter]) -> Filter:
    """AND or OR, without constants and without a junction of the same kind as a part."""
    found: list[Filter] = []
    for part in parts:
        if isinstance(part, bool):
            if part is not is_and:
                return part
        elif isinstance(part, Junction) and part.is_and is is_and:
            found.extend(part.parts)
        else:
            found.append(part)
    return found[0] if len(found) == 1 else Junction(is_and, tuple(found)) if found else is_and


def narrowed(found: Filter, values: Mapping[int, Collection[Stored]]) -> Filter:
    """The filter for rows whose values of some columns, by field id, are among these."""
    if isinstance(found, Predicate):
        return found.among(values[found.field_id]) if found.field_id in values else found
    if isinstance(found, Junction):
        return junction(found.is_and, [narrowed(part, values) for part in found.parts])
    return found


def to_json(found: Filter) -> Any:
    """The filter in the protocol's form; each predicate as it was asked."""
    if isinstance(found, bool):
        return found
    if not isinstance(found, Junction):
        return found.json
    kind, parts = "and" if found.is_and else "or", [to_json(part) for part in found.parts]
    while len(parts) > 1:  # balanced, so that readers need not recurse deeply
        pairs = zip(parts[::2], [*parts[1::2], None], strict=False)
        parts = [left if right is None else {"type": kind, "left": left, "right": right} for left, right in pairs]
    return parts[0]


def alternatives(found: Filter) -> list[Alternative]:
    """What rows that match must have: the values of one of these. `[{}]` is any row, `[]` no row. More rows may have
    them than match."""
    if isinstance(found, bool):
        return [{}] if found else []
    if isinstance(found, Predicate):
        if found.op in ("eq", "in") and found.is_single:
            return [{found.field_id: frozenset(found.values)}]
        return [{found.field_id: frozenset([None])}] if found.op == "is-null" and found.is_single else [{}]
    if isinstance(found, Unjudged):
        return [{}]
    return (_all_of if found.is_and else _any_of)([alternatives(part) for part in found.parts])


def _any_of(parts: Sequence[list[Alternative]]) -> list[Alternative]:
    single: dict[int, set[Stored]] = {}  # alternatives that name one field: their values together
    others: list[Alternative] = []
    for part in parts:
        for one in part:
            if not one:
                return [{}]
            if len(one) == 1:
                [(number, values)] = one.items()
                single.setdefault(number, set()).update(values)
            else:
                others.append(one)
    return [*({number: frozenset(values)} for number, values in single.items()), *others]


def _all_of(parts: Sequence[list[Alternative]]) -> list[Alternative]:
    found: list[Alternative] = [{}]
    for part in sorted(parts, key=len):
        if part == [{}]:
            continue
        values = sum(len(values) for one in part for values in one.values())
        if len(found) * len(part) > MOST_ALTERNATIVES or len(found) * values > MOST_VALUES:
            continue
        pairs = (both(one, other) for one, other in product(found, part))
        found = [one for one in pairs if one is not None]
    return found


def both(one: Alternative, other: Alternative) -> Alternative | None:
    """The values that both allow; None where there are none."""
    found = dict(one)
    for number, values in other.items():
        found[number] = values & found[number] if number in found else values
        if not found[number]:
            return None
    return found


# -- parsing -----------------------------------------------------------------------------------------------------------


def _type_of(node: Any) -> str:
    if isinstance(node, bool):
        return "true" if node else "false"
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise InvalidPlan("filter: an expression", expected="true, false, or an object with a type", found=_shown(node))
    kind: str = node["type"].lower().replace("_", "-")
    if kind not in (*NEGATED, "and", "or", "not", "true", "false", "literal"):
        raise InvalidPlan("filter: the type of an expression", found=_shown(node["type"]))
    return kind


def _constant(node: Any, negated: bool) -> bool:
    found = node if isinstance(node, bool) else node.get("value", node["type"] == "true")
    if not isinstance(found, bool):
        raise InvalidPlan("filter: a literal", expected="true or false", found=_shown(found))
    return found is not negated


def _child(node: Mapping[str, Any], name: str) -> Any:
    if name not in node:
        raise InvalidPlan(f"filter: {node['type']} without {name}")
    return node[name]


def _predicate(node: Mapping[str, Any], op: str, negated: bool, schema: Schema, case_sensitive: bool) -> Filter:
    json = {"type": "not", "child": node} if negated else node
    given = node.get("values") if op in WITH_VALUES else [] if op in WITHOUT_VALUE else [_child(node, "value")]
    if not isinstance(given, list):
        raise InvalidPlan(f"filter: the values of {op}", expected="a list", found=_shown(given))
    name = _column(_child(node, "term"))
    field = None if name is None else _field(schema, name, case_sensitive)
    if field is None or not isinstance(field.field_type, iceberg_types.PrimitiveType):
        return Unjudged(json)
    values = [_stored(field.field_type, one.get("value") if isinstance(one, dict) else one) for one in given]
    op = NEGATED[op] if negated else op
    if op.endswith("starts-with") and not isinstance(field.field_type, iceberg_types.StringType):
        return Unjudged(json)
    exact = op in ("eq", "in") or not isinstance(field.field_type, REAL) or values == given
    if not exact or any(value is None for value in values):  # a rounded literal has another order than the given one
        return Unjudged(json)
    if op in WITH_VALUES and not values:
        return op == "not-in"
    literals = dict(zip(values, given, strict=True))
    is_top = any(one.field_id == field.field_id for one in schema.fields)
    is_single = any(one.field_id == field.field_id for one in single_fields(schema.fields))
    return Predicate(op, field.field_id, field.field_type, literals, json, is_top, is_single)


def single_fields(fields: Iterable[iceberg_types.NestedField]) -> Iterator[iceberg_types.NestedField]:
    """The columns, and the fields of structs within them: a row has one value of each."""
    for one in fields:
        yield one
        if isinstance(one.field_type, iceberg_types.StructType):
            yield from single_fields(one.field_type.fields)


def _column(term: Any) -> str | None:
    """The name of the column of a term; None for a transform."""
    if isinstance(term, dict) and term.get("type") == "reference":
        term = term.get("term")
    if isinstance(term, dict) and term.get("type") == "transform":
        return None
    if not isinstance(term, str):
        raise InvalidPlan("filter: a term", expected="the name of a column, or a transform", found=_shown(term))
    return term


def _field(schema: Schema, name: str, case_sensitive: bool) -> iceberg_types.NestedField | None:
    if case_sensitive:
        names = [name]
    else:
        names = [one for one in schema.column_names if one.lower() == name.lower()]
    try:
        return schema.find_field(names[0]) if len(names) == 1 else None
    except ValueError:
        return None


def _shown(found: Any) -> str:
    return repr(found)[:100]


# -- literals ----------------------------------------------------------------------------------------------------------


def _stored(kind: iceberg_types.PrimitiveType, value: Any) -> Stored:
    """The stored form of a literal; None for one that is no value of the type."""
    try:
        return _READ[type(kind)](kind, value)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, KeyTypeError, struct.error):
        return None


def _integer(bits: int) -> Callable[[Any, Any], Stored]:
    def read(_: Any, value: Any) -> Stored:
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError
        return value

    return read


def _real(kind: Any, value: Any) -> Stored:
    """The nearest value of the type. NaN has no order."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError
    found = float(value)
    if isinstance(kind, iceberg_types.FloatType):
        found = struct.unpack("<f", struct.pack("<f", found))[0]
    return found + 0.0


def _text(_: Any, value: Any) -> Stored:
    if not isinstance(value, str):
        raise TypeError
    value.encode()
    return value


def _decimal(kind: Any, value: Any) -> Stored:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or len(str(value)) > LONGEST_DECIMAL:
        raise TypeError
    number = Decimal(value)
    if not number.is_finite() or (number and number.adjusted() >= kind.precision - kind.scale):
        raise ValueError  # before its digits are made: 1e999999 has a million
    unscaled = number.scaleb(kind.scale, EXACT)
    if unscaled != unscaled.to_integral_value(context=EXACT):
        raise ValueError
    return int(unscaled)


def _date(_: Any, value: Any) -> Stored:
    return _integer(32)(_, value) if isinstance(value, int) else read_key(_text(_, value), KeyColumn("", "date"))


def _timestamp(name: str) -> Callable[[Any, Any], Stored]:
    def read(_: Any, value: Any) -> Stored:
        return _integer(64)(_, value) if isinstance(value, int) else read_key(_text(_, value), KeyColumn("", name))

    return read


def _time(_: Any, value: Any) -> Stored:
    if isinstance(value, int):
        return _integer(64)(_, value)
    return read_key(f"1970-01-01T{value}", KeyColumn("", "timestamp_ntz"))


def _bytes(kind: Any, value: Any) -> Stored:
    found = bytes.fromhex(value)
    if " " in value or (isinstance(kind, iceberg_types.FixedType) and len(found) != len(kind)):
        raise ValueError
    return found


def _boolean(_: Any, value: Any) -> Stored:
    if not isinstance(value, bool):
        raise TypeError
    return value


_READ: dict[type[iceberg_types.PrimitiveType], Callable[[Any, Any], Stored]] = {
    iceberg_types.BooleanType: _boolean,
    iceberg_types.IntegerType: _integer(32),
    iceberg_types.LongType: _integer(64),
    iceberg_types.FloatType: _real,
    iceberg_types.DoubleType: _real,
    iceberg_types.DecimalType: _decimal,
    iceberg_types.DateType: _date,
    iceberg_types.TimeType: _time,
    iceberg_types.TimestampType: _timestamp("timestamp_ntz"),
    iceberg_types.TimestamptzType: _timestamp("timestamp"),
    iceberg_types.StringType: _text,
    iceberg_types.UUIDType: lambda _, value: uuid.UUID(value).bytes,
    iceberg_types.BinaryType: _bytes,
    iceberg_types.FixedType: _bytes,
}
