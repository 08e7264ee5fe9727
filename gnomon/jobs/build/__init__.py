"""The build of an index: list, compare, scan, write, commit; and key-value folders.

- `job`               the build
- `engine`            the engine that scans and writes: Spark or this process
- `planning`          the plan of a build
- `specs`             the spec of the index
- `text_columns`      the columns of text files
- `key_value_folder`  rows as a key-value folder
"""

from gnomon.jobs.build.engine import Engine
from gnomon.jobs.build.job import BuildResult, build, build_index, build_metadata, nothing_to_do
from gnomon.jobs.build.key_value_folder import (
    HeldRows,
    LocalValues,
    Measured,
    Partition,
    ValueRows,
    WriteResult,
    is_measured,
    write_btree,
    write_rows,
)
from gnomon.jobs.build.planning import FORMAT_NAMES, Plan, check_rows, plan
from gnomon.jobs.build.specs import RESERVED, BuildRequest, Vanished, check_ragged, new_spec
from gnomon.jobs.build.text_columns import infer_schema

__all__ = [
    "FORMAT_NAMES",
    "RESERVED",
    "BuildRequest",
    "BuildResult",
    "Engine",
    "HeldRows",
    "LocalValues",
    "Measured",
    "Partition",
    "Plan",
    "ValueRows",
    "Vanished",
    "WriteResult",
    "build",
    "build_index",
    "build_metadata",
    "check_ragged",
    "check_rows",
    "infer_schema",
    "is_measured",
    "new_spec",
    "nothing_to_do",
    "plan",
    "write_btree",
    "write_rows",
]
