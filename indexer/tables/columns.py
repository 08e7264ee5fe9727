"""The columns that a catalog table declares, in the types of sources and keys."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from gnomon.btree.key_types import is_key_type
from gnomon.indexer.spark import VARIANTS, arrow_of
from gnomon.jobs.load import NoType
from gnomon.shadow.errors import UsageError
from gnomon.sources import OptionError
from gnomon.sources.types import to_ddl

UNREAD = (*VARIANTS, DayTimeIntervalType, YearMonthIntervalType)


def columns_of_table(source: str, schema: StructType, partitions: Sequence[str], format_name: str) -> str:
    """The columns of a table's files, as DDL. UsageError for a type that is not supported in files. ORC's timestamps
    have no zone: they are local times of their writer."""
    fields = []
    for field in schema:
        if field.name in partitions:
            continue
        try:
            fields.append(pa.field(field.name, _arrow(field.dataType)))
        except NoType:
            raise _unread(source, field) from None
    if format_name == "orc":
        fields = [field.with_type(_without_zone(field.type)) for field in fields]
    try:
        return to_ddl(pa.schema(fields))
    except OptionError as error:
        raise UsageError(str(error), source) from None


def partition_types(source: str, schema: StructType, partitions: Sequence[str]) -> dict[str, str]:
    """The partition columns, in order, with their types."""
    types = {}
    for name in partitions:
        kind = schema[name].dataType.simpleString()
        if not is_key_type(kind) or kind == "binary":
            raise UsageError(
                f"a partition column of type {kind} ({name}) is not read; expected text, a number ...", source
            )
        types[name] = kind
    return types


def _unread(source: str, field: StructField) -> UsageError:
    return UsageError(f"column {field.name} of type {field.dataType.simpleString()} is not read from files", source)


def _arrow(kind: DataType) -> pa.DataType:
    if isinstance(kind, UNREAD):
        raise NoType
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(_arrow(kind.keyType), _arrow(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, _arrow(field.dataType)) for field in kind])
    return arrow_of(kind)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
