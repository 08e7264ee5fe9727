"""Whether Spark's scan reads a column as `sources` does. If not, the index would hold keys that a fetch does not find
in their rows, so `sources` scans."""

from collections.abc import Sequence

import pyarrow as pa

from gnomon.jobs.files import Described
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import is_lake
from gnomon.sources.declared_schema import CONVERTED, FILE_COLUMN, FILE_FORMAT
from gnomon.sources.parquet import INT96_TYPE, OLD_CALENDAR, PHYSICAL_TYPE

ALIKE = {
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.bool_()),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()),
}


def reads_alike(spec: IndexSpec, described: Sequence[Described], case_sensitive: bool = False) -> bool:
    """Whether Spark and `sources` read the same values of every indexed column of these Parquet files. With
    `case_sensitive` Spark finds columns by their exact names only."""
    names = [column.name for column in (*spec.stored_keys, *spec.include)]
    if any(FILE_FORMAT in (one.schema.metadata or {}) for one in described):
        return False  # an Avro or ORC file of a table that also has Parquet files
    if is_lake(spec.table) and any(name not in one.schema.names for one in described for name in names):
        return False  # the file may have a dropped column of this name
    there = [(one.schema, name) for one in described for name in names if name in one.schema.names]
    return all(_is_alike(schema, name, case_sensitive) for schema, name in there)


def _is_alike(schema: pa.Schema, name: str, case_sensitive: bool) -> bool:
    """Whether Spark and `sources` read the same values of a column. False for types that Spark does not know or reads
    differently: INT96 out of range, and days of the old calendar, which only Spark converts to the new one. False also
    where the file's type differs from the type that a catalog table declares, and where Spark does not find the column
    by its name."""
    field = schema.field(name)
    kind = field.type
    own = field.metadata or {}
    in_file = own.get(FILE_COLUMN, name.encode()).decode()
    if CONVERTED in own or in_file.lower() != name.lower() or (case_sensitive and in_file != name):
        return False
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        known, of_file = field.metadata or {}, schema.metadata or {}
        if known.get(PHYSICAL_TYPE) == INT96_TYPE or OLD_CALENDAR in of_file:
            return False
    return kind in ALIKE or pa.types.is_decimal128(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns")
