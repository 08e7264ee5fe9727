"""The build of an index: list, compare, scan, write, commit.

- `job`           the build
- `engine`        the engine that scans and writes: Spark or this process
- `planning`      the plan of a build
- `specs`         the spec of the index
- `text_columns`  the columns of text files
"""

from gnomon.jobs.build.engine import Engine
from gnomon.jobs.build.job import BuildResult, build, build_index, build_metadata, nothing_to_do
from gnomon.jobs.build.planning import FORMAT_NAMES, Plan, check_rows, plan
from gnomon.jobs.build.specs import RESERVED, BuildRequest, Vanished, check_ragged, new_spec
from gnomon.jobs.build.text_columns import infer_schema

__all__ = [
    "FORMAT_NAMES",
    "RESERVED",
    "BuildRequest",
    "BuildResult",
    "Engine",
    "Plan",
    "Vanished",
    "build",
    "build_index",
    "build_metadata",
    "check_ragged",
    "check_rows",
    "infer_schema",
    "new_spec",
    "nothing_to_do",
    "plan",
]
