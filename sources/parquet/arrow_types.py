"""The Arrow side of a file: its schema, and a footer template for each choice of columns.

A column pyarrow cannot give a type is refused on its own, so that the other columns of the file can be read.
"""

from collections.abc import Sequence

import pyarrow as pa

from sources.parquet.footer import Footer
from sources.parquet.schema import Column, stored_fields
from sources.parquet.wrap import Template

PHYSICAL_TYPE = b"PARQUET:physical_type"  # in the metadata of a field that is stored as INT96
INT96 = 3  # physical type of a leaf
NOT_A_TYPE = (pa.ArrowException, OSError, ValueError)


class ArrowTypes:
    """`schema` has a field for each column of the footer; a refused one has the type null. `refusals` is by the
    ordinal of the column."""

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        self._fields = stored_fields(footer.arrow_schema, len(footer.columns))
        self._single: dict[int, Template] = {}
        self.refusals: dict[int, str] = {}
        for column in footer.columns:
            if not column.leaves:
                self.refusals[column.ordinal] = "it has no leaves"
            elif column.padded_decimal:
                self.refusals[column.ordinal] = "it holds a decimal in more bytes than pyarrow reads"
        self.schema = pa.schema(
            [self._instant(field, column) for field, column in zip(self._schema(), footer.columns, strict=True)]
        )

    @staticmethod
    def _instant(field: pa.Field, column: Column) -> pa.Field:
        """INT96 is an instant, as Spark, which writes it, reads it; pyarrow gives it no time zone."""
        if column.flat and column.leaves[0].kind == INT96 and field.type == pa.timestamp("us"):
            known = field.metadata or {}
            return field.with_type(pa.timestamp("us", "UTC")).with_metadata({**known, PHYSICAL_TYPE: b"INT96"})
        return field

    @property
    def cache_bytes(self) -> int:
        return 500 * len(self._footer.columns) + sum(made.cache_bytes for made in list(self._single.values()))

    def template(self, columns: Sequence[Column]) -> Template:
        """Kept for single columns, which is what fetches use."""
        if len(columns) != 1:
            return Template(self._footer, columns, self._fields)
        made = self._single.get(columns[0].ordinal)
        if made is None:
            made = self._single[columns[0].ordinal] = Template(self._footer, columns, self._fields)
        return made

    def _schema(self) -> pa.Schema:
        columns = self._footer.columns
        if not self.refusals:
            try:
                return Template(self._footer, columns, self._fields).schema()
            except NOT_A_TYPE:
                pass  # one of them: which, the columns one by one will show
        return pa.schema([self._field(column) for column in columns])

    def _field(self, column: Column) -> pa.Field:
        if column.ordinal not in self.refusals:
            try:
                return Template(self._footer, [column], self._fields).schema().field(0)
            except NOT_A_TYPE as error:
                self.refusals[column.ordinal] = f"pyarrow cannot read its type: {error}"
        return pa.field(column.name, pa.null())
