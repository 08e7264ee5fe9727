"""The build of an index: list, compare, scan, write, commit; and key-value folders.

- `job`               the build
- `engine`            the engine that scans and writes, and the one of this process
- `planning`          the plan of a build
- `specs`             the spec of the index
- `ranges`            the ranges of keys of an index in ranges
- `key_value_folder`  rows as a key-value folder
"""

from gnomon.jobs.build.engine import Engine, LocalEngine, has_spark
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
from gnomon.jobs.build.specs import RESERVED, BuildRequest, Vanished, check_ragged, infer_schema, new_spec

__all__ = [
    "FORMAT_NAMES",
    "RESERVED",
    "BuildRequest",
    "BuildResult",
    "Engine",
    "HeldRows",
    "LocalEngine",
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
    "has_spark",
    "infer_schema",
    "is_measured",
    "new_spec",
    "nothing_to_do",
    "plan",
    "write_btree",
    "write_rows",
]
