"""The common type of timestamps that differ between files, as in Spark, DuckDB and Polars.

Where one file has a zone, the others' wall clocks count as UTC. Zones that differ become UTC, the unit is the finest.
A value beyond the range of that unit has to be refused."""

import re
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from gnomon.sources.types.arrays import is_list

UNITS = ("s", "ms", "us", "ns")
_NAME = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([^\]]+))?\]")


def common_moments(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type `one`, in which each timestamp, maybe nested, has the common type with that of `other`."""
    if types.is_timestamp(one) and types.is_timestamp(other):
        zones = {kind.tz for kind in (one, other)}
        return pa.timestamp(max(one.unit, other.unit, key=UNITS.index), zones.pop() if len(zones) == 1 else "UTC")
    if types.is_struct(one) and types.is_struct(other):
        there = {field.name: field.type for field in other}
        fields = [(field, there.get(field.name, field.type)) for field in one]
        return pa.struct([field.with_type(common_moments(field.type, kind)) for field, kind in fields])
    if types.is_map(one) and types.is_map(other):
        kinds = common_moments(one.key_type, other.key_type), common_moments(one.item_type, other.item_type)
        return one if kinds == (one.key_type, one.item_type) else pa.map_(*kinds)
    if types.is_list(one) and is_list(other):
        return pa.list_(one.value_field.with_type(common_moments(one.value_type, other.value_type)))
    return one


def common_moments_named(one: str, other: str) -> str | None:
    """The name in Arrow of the type `common_moments`, from two names. None where they differ in more than the types of
    timestamps, or have none."""
    if not _NAME.search(one) or _NAME.sub("", one) != _NAME.sub("", other):
        return None
    found = map(common_moments, _moments_in(one), _moments_in(other))
    return _NAME.sub(lambda _: str(next(found)), one)


def with_moments_named(kind: pa.DataType, name: str) -> pa.DataType:
    """A type with the timestamps that a name of `common_moments_named` has."""
    return _with_moments(kind, _moments_in(name))


def _moments_in(name: str) -> Iterator[pa.DataType]:
    return (pa.timestamp(match[1], match[2]) for match in _NAME.finditer(name))


def _with_moments(kind: pa.DataType, moments: Iterator[pa.DataType]) -> pa.DataType:
    if types.is_timestamp(kind):
        return next(moments)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_moments(field.type, moments)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_with_moments(kind.key_type, moments), _with_moments(kind.item_type, moments))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_moments(kind.value_type, moments)))
    return kind
