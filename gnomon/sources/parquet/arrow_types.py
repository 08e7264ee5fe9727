"""The Arrow schema of a file, and a footer template for each choice of columns.

A column that pyarrow cannot give a type is refused alone, so that the other columns of the file can be read.
"""

from collections.abc import Sequence

import pyarrow as pa

from gnomon.base.errors import check_memory
from gnomon.sources.parquet.footer import OLD_CALENDAR, Footer
from gnomon.sources.parquet.schema import Column, stored_fields
from gnomon.sources.parquet.synthetic_file import FooterTemplate

PHYSICAL_TYPE, INT96_TYPE = b"PARQUET:physical_type", b"INT96"  # in the metadata of a field that is stored as INT96
INT96 = 3  # physical type of a leaf
CHOICES = 32  # number of templates that are cached
NOT_A_TYPE = (pa.ArrowException, OSError, ValueError)


class ArrowTypes:
    """The Arrow types of a file's columns.

    `schema` has a field for each column of the footer; a refused one has the type null. Its metadata has OLD_CALENDAR
    where the file has that mark. `kinds` are its types. `refusals` is by the ordinal of the column.
    """

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        self._fields = stored_fields(footer.arrow_schema, len(footer.columns))
        self._templates: dict[tuple[int, ...], FooterTemplate] = {}
        self.refusals: dict[int, str] = {}
        for column in footer.columns:
            if not column.leaves:
                self.refusals[column.ordinal] = "it has no leaves"
            elif any(b"\0" in name for leaf in column.leaves for name in leaf.path):
                self.refusals[column.ordinal] = (
                    "its name, or that of a nested field, contains a NUL, which pyarrow misreads"
                )
            elif column.padded_decimal:
                self.refusals[column.ordinal] = "it holds a decimal in more bytes than pyarrow reads"
        self.schema = pa.schema(
            [self._instant(field, column) for field, column in zip(self._schema(), footer.columns, strict=True)],
            {OLD_CALENDAR: b""} if footer.old_calendar else None,
        )
        self.kinds = self.schema.types

    @staticmethod
    def _instant(field: pa.Field, column: Column) -> pa.Field:
        """The field with an instant for INT96, as Spark, which writes INT96, reads it. pyarrow gives it no time
        zone."""
        if column.flat and column.leaves[0].kind == INT96 and field.type == pa.timestamp("us"):
            known = field.metadata or {}
            return field.with_type(pa.timestamp("us", "UTC")).with_metadata({**known, PHYSICAL_TYPE: INT96_TYPE})
        return field

    @property
    def cache_bytes(self) -> int:
        return 500 * len(self._footer.columns) + sum(made.cache_bytes for made in list(self._templates.values()))

    def template(self, columns: Sequence[Column]) -> FooterTemplate:
        """The template for these columns. Cached, up to `CHOICES` templates besides those of single columns."""
        key = tuple([column.ordinal for column in columns])
        made = self._templates.get(key)
        if made is None:
            if len(self._templates) >= len(self._footer.columns) + CHOICES:
                self._templates.clear()
            made = self._templates[key] = FooterTemplate(self._footer, columns, self._fields)
        return made

    def _schema(self) -> pa.Schema:
        columns = self._footer.columns
        if not self.refusals:
            try:
                return FooterTemplate(self._footer, columns, self._fields).schema()
            except NOT_A_TYPE as error:
                check_memory(error)  # one of the columns has no valid type: reading them one by one shows which
        return pa.schema([self._field(column) for column in columns])

    def _field(self, column: Column) -> pa.Field:
        if column.ordinal not in self.refusals:
            try:
                return FooterTemplate(self._footer, [column], self._fields).schema().field(0)
            except NOT_A_TYPE as error:
                check_memory(error)
                self.refusals[column.ordinal] = f"pyarrow cannot read its type: {error}"
        return pa.field(column.name, pa.null())
