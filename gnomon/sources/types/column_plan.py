"""The columns of a new file that is written like another one of its source."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from gnomon.sources.errors import UnsupportedFormat
from gnomon.sources.types.arrays import nulls
from gnomon.sources.types.exact_cast import Unfit, fit, kept_type


class Column(NamedTuple):
    """A column of the new file. `field`: its name and type. `given`: the rows have the column, otherwise it is null.
    `kept`: its type is that of the existing file."""

    field: pa.Field
    given: bool
    kept: bool


def plan_columns(
    fields: pa.Schema, schema: pa.Schema, natural: Callable[[pa.DataType], pa.DataType], path: str
) -> list[Column]:
    """The columns of the existing file in its order, then those that `schema` adds, in the format's `natural` type.
    UnsupportedFormat where `natural` has none, or a required column is missing."""
    columns = []
    for field in fields:
        if field.name not in schema.names:
            if not field.nullable:
                what = "required in the source's files, and the rows have no such column"
                raise UnsupportedFormat(what, path, column=field.name)
            columns.append(Column(field, False, True))
            continue
        wanted = schema.field(field.name).type
        kept = kept_type(field.type, wanted) == field.type
        columns.append(
            Column(field if kept else field.with_type(_natural_type(natural, wanted, field.name, path)), True, kept)
        )
    for field in schema:
        if field.name not in fields.names:
            kind = _natural_type(natural, field.type, field.name, path)
            columns.append(Column(pa.field(field.name, kind), True, False))
    return columns


def _natural_type(
    natural: Callable[[pa.DataType], pa.DataType], kind: pa.DataType, name: str, path: str
) -> pa.DataType:
    try:
        return natural(kind)
    except TypeError as error:
        raise UnsupportedFormat(f"{kind}: {error}", path, column=name) from None


def arrays_of(columns: Sequence[Column], batch: pa.RecordBatch, path: str) -> list[pa.Array]:
    """The columns of some rows, cast to the types of the file."""
    arrays = []
    for field, given, _ in columns:
        if not given:
            arrays.append(nulls(batch.num_rows, field.type))
            continue
        array = batch.column(field.name)
        if not field.nullable and array.null_count:
            raise UnsupportedFormat("required in the source's files", path, column=field.name, found="a null")
        try:
            arrays.append(fit(array, field.type))
        except Unfit as error:
            raise UnsupportedFormat(str(error), path, column=field.name) from None
    return arrays
