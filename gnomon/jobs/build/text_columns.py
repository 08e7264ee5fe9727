"""The columns with which text files are read, since these files do not declare their columns."""

from collections.abc import Sequence

from gnomon.jobs.build.engine import Engine
from gnomon.jobs.files import is_inferred, merged_columns
from gnomon.shadow.metadata import IndexSpec, SourceRoot
from gnomon.shadow.storage import FileInfo
from gnomon.sources import Options


def infer_schema(
    engine: Engine,
    root: SourceRoot,
    format_name: str,
    options: Options,
    files: Sequence[FileInfo],
    spec: IndexSpec | None,
) -> str:
    """DDL of the known columns and the columns of these files (`jobs.files.merged_columns`). Empty for formats whose
    files declare their columns, and where the user gave a schema."""
    if not is_inferred(format_name, options):
        return ""
    found = engine.columns_of_text(root, format_name, options, files) if files else []
    return merged_columns(format_name, files, found, spec)
