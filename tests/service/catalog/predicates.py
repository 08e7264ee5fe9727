"""Random filters of Iceberg's REST protocol, and whether a row matches one.

A row matches as Iceberg has it: a negated predicate holds for null, a range never holds for null or NaN. SQL's answer
is never more rows."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

RANGES = {
    "lt": lambda value, literal: value < literal,
    "lt-eq": lambda value, literal: value <= literal,
    "gt": lambda value, literal: value > literal,
    "gt-eq": lambda value, literal: value >= literal,
}
EPOCH = dt.datetime(1970, 1, 1)


def random_filter(chance: Random, values: Mapping[str, Sequence[Any]], keys: Sequence[str], depth: int = 3) -> Any:
    """A filter on columns whose values may be among `values`; the columns `keys` come often, with equality."""
    kind = chance.random()
    if depth and kind < 0.45:
        left, right = (random_filter(chance, values, keys, depth - 1) for _ in "lr")
        return {"type": chance.choice(["and", "or"]), "left": left, "right": right}
    if depth and kind < 0.52:
        return {"type": "not", "child": random_filter(chance, values, keys, depth - 1)}
    if kind < 0.55:
        return chance.choice([True, False, {"type": "true"}, {"type": "false"}])
    if kind < 0.8:
        return _of_key(chance, chance.choice(keys), values)
    name = chance.choice(list(values))
    op = chance.choice(["eq", "not-eq", "in", "not-in", "is-null", "not-null", *RANGES, "starts-with"])
    known = [one for one in values[name] if one is not None and not (isinstance(one, float) and math.isnan(one))]
    if op in ("is-null", "not-null") or not known:
        return {"type": "is-null" if op == "is-null" else "not-null", "term": name}
    if op in ("in", "not-in"):
        return {
            "type": op,
            "term": name,
            "values": [literal(chance.choice(known)) for _ in range(chance.randint(0, 5))],
        }
    if op == "starts-with":
        texts = [one for one in known if isinstance(one, str)]
        return {"type": op, "term": name, "value": chance.choice(texts)[:2]} if texts else True
    term: Any = {"type": "reference", "term": name} if chance.random() < 0.1 else name
    return {"type": op, "term": term, "value": literal(chance.choice(known))}


def _of_key(chance: Random, name: str, values: Mapping[str, Sequence[Any]]) -> Any:
    known = [one for one in values[name] if one is not None and not (isinstance(one, float) and math.isnan(one))]
    kind = chance.random()
    if kind < 0.1 or not known:
        return {"type": "is-null", "term": name}
    if kind < 0.6:
        return {"type": "eq", "term": name, "value": literal(chance.choice(known))}
    many = chance.choice([1, 2, 3, 20])
    return {"type": "in", "term": name, "values": [literal(chance.choice(known)) for _ in range(many)]}


def literal(value: Any) -> Any:
    """A value as clients send it: ISO 8601 text for dates and timestamps, text for decimals, hexadecimal bytes."""
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat()
        return text if value.tzinfo is None else f"{text}+00:00"
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


NEGATED = {"lt": "gt-eq", "gt": "lt-eq", "lt-eq": "gt", "gt-eq": "lt"}


def matches(filter: Any, row: Mapping[str, Any], negated: bool = False) -> bool:
    """Whether a row matches a filter, or its negation."""
    if isinstance(filter, bool):
        return filter is not negated
    kind = filter["type"]
    if kind in ("true", "false"):
        return (kind == "true") is not negated
    if kind == "not":
        return matches(filter["child"], row, not negated)
    if kind in ("and", "or"):
        found = (matches(filter[side], row, negated) for side in ("left", "right"))
        return all(found) if (kind == "and") is not negated else any(found)
    term = filter["term"]["term"] if isinstance(filter["term"], dict) else filter["term"]
    value = row[term]
    if kind in RANGES:
        if value is None or value != value:
            return False
        return bool(RANGES[NEGATED[kind] if negated else kind](*_comparable(value, filter["value"])))
    return _holds(filter, kind.removeprefix("not-"), value) is not (kind.startswith("not-") is not negated)


def _holds(filter: Any, kind: str, value: Any) -> bool:
    if kind in ("is-null", "null"):
        return value is None
    if value is None:
        return False
    if kind == "starts-with":
        return bool(value.startswith(filter["value"]))
    shown = literal(value)
    return any(_same(shown, one) for one in (filter["values"] if kind == "in" else [filter["value"]]))


def _same(shown: Any, given: Any) -> bool:
    return type(shown) is type(given) and shown == given


def _comparable(value: Any, given: Any) -> tuple[Any, Any]:
    if isinstance(value, dt.datetime):
        return value, dt.datetime.fromisoformat(given)
    if isinstance(value, dt.date):
        return value, dt.date.fromisoformat(given)
    if isinstance(value, dt.time):
        return value, dt.time.fromisoformat(given)
    if isinstance(value, Decimal):
        return value, Decimal(given)
    return value, bytes.fromhex(given) if isinstance(value, bytes) else given
