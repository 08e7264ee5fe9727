"""The columns of a file that is to be written as another one of its source is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from sources.errors import UnsupportedFormat
from sources.types.read_cast import Unfit
from sources.types.write_cast import fit, kept_type, nulls


class Column(NamedTuple):
    """`field` as it is written. `given`: it comes with the rows, else it is null. `kept`: as the file has it."""

    field: pa.Field
    given: bool
    kept: bool


def plan_columns(
    fields: pa.Schema, schema: pa.Schema, natural: Callable[[pa.DataType], pa.DataType], path: str
) -> list[Column]:
    """Those of the source's file, in its order, then those that `schema` adds, in the types that are `natural` to the
    format. UnsupportedFormat, also from `natural`, where there is none."""
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
        columns.append(Column(field if kept else field.with_type(_made(natural, wanted, field.name, path)), True, kept))
    for field in schema:
        if field.name not in fields.names:
            kind = _made(natural, field.type, field.name, path)
            columns.append(Column(pa.field(field.name, kind), True, False))
    return columns


def _made(natural: Callable[[pa.DataType], pa.DataType], kind: pa.DataType, name: str, path: str) -> pa.DataType:
    try:
        return natural(kind)
    except TypeError as error:
        raise UnsupportedFormat(f"{kind}: {error}", path, column=name) from None


def arrays_of(columns: Sequence[Column], batch: pa.RecordBatch, path: str) -> list[pa.Array]:
    """The columns of some rows in the types in which they are written."""
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
