"""The columns of files that do not declare them (text), inferred from their rows."""

from collections.abc import Sequence

import pyarrow as pa

from gnomon.btree.keys import type_of_arrow
from gnomon.jobs.files.source_files import listed, of_one_format
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import FileInfo, Readable
from gnomon.sources import FORMATS, Options
from gnomon.sources.types import COMMENT, NOTHING, parse_ddl, to_ddl


def is_inferred(format_name: str, options: Options) -> bool:
    """Whether columns are inferred from the rows: the files do not declare them, and the user gave no schema."""
    return FORMATS[format_name].infer is not None and "schema" not in options


def columns_in(storage: Readable, format_name: str, options: Options, info: FileInfo) -> pa.Schema:
    """The columns of one file. Its metadata is for `merged_columns`."""
    infer = FORMATS[format_name].infer
    assert infer is not None
    with listed(storage, info) as reader, of_one_format(reader, format_name):
        return infer(reader, options)


def infer_locally(root: SourceRoot, format_name: str, options: Options, files: Sequence[FileInfo]) -> str:
    """DDL of the columns of these files, read one after the other."""
    schemas = [columns_in(root.storage, format_name, options, info) for info in files]
    return merged_columns(format_name, files, list(enumerate(schemas)), None)


def merged_columns(
    format_name: str, files: Sequence[FileInfo], found: Sequence[tuple[int, pa.Schema]], spec: IndexSpec | None
) -> str:
    """DDL of the known columns, if the index has a spec, and the columns of these files, with types widened to hold
    every value. `found` has the columns of each file by its ordinal. UsageError names the first file that would give an
    indexed column another type."""
    merge = FORMATS[format_name].merge
    assert merge is not None
    by_schema: dict[bytes, int] = {}
    for ordinal, schema in sorted(found, key=lambda one: one[0]):
        by_schema.setdefault(schema.serialize().to_pybytes(), ordinal)
    schemas = [pa.ipc.read_schema(pa.py_buffer(text)) for text in by_schema]  # with the metadata for the merge
    known = [_known(spec)] if spec and spec.schema else []
    merged = merge([*known, *schemas])
    if spec is not None and _changed(spec, merged):
        for ordinal, schema in zip(by_schema.values(), schemas, strict=True):
            for changed in _changed(spec, merge([*known, schema])):
                raise UsageError(changed, files[ordinal].path)
    return to_ddl(merged)


def _known(spec: IndexSpec) -> pa.Schema:
    """The columns known before. An indexed column with only nulls is a string, and stays one."""
    indexed = {one.name for one in (*spec.stored_keys, *spec.include)}
    return pa.schema(
        [
            field.remove_metadata() if field.name in indexed and field.metadata == {COMMENT: NOTHING} else field
            for field in parse_ddl(spec.schema)
        ]
    )


def _changed(spec: IndexSpec, schema: pa.Schema) -> list[str]:
    """The error texts for indexed columns that have another type in a schema than in the index."""
    columns = [
        (one, schema.field(one.name).type) for one in (*spec.stored_keys, *spec.include) if one.name in schema.names
    ]
    return [
        f"column {one.name} is {found}, elsewhere in the source it is {one.source_type or one.type}"
        for one, found in columns
        if type_of_arrow(found) != one.type
    ]
