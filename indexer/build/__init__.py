"""The build of an index: list, compare, scan, write, commit.

- `job`               the build
- `planning`          the plan of a build
- `specs`             the spec of the index
- `segment`           the index files of new source files
- `scan`              keys and pointers of source files
- `write`             index files, written in tasks
- `page_maps`         page maps, written in tasks
- `sort_prefix`       texts with a common prefix, sorted fast
- `reader_parity`     whether Spark reads a column as `sources` does
- `key_value_folder`  a DataFrame as a key-value folder
"""

from gnomon.indexer.build.job import BuildResult, build, build_index, build_without_spark, nothing_to_do
from gnomon.indexer.build.key_value_folder import WriteResult, write_btree
from gnomon.indexer.build.planning import FORMAT_NAMES, Plan, check_rows, plan
from gnomon.indexer.build.specs import BuildRequest, Vanished, new_spec

__all__ = [
    "FORMAT_NAMES",
    "BuildRequest",
    "BuildResult",
    "Plan",
    "Vanished",
    "WriteResult",
    "build",
    "build_index",
    "build_without_spark",
    "check_rows",
    "new_spec",
    "nothing_to_do",
    "plan",
    "write_btree",
]
