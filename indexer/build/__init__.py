"""Builds by Spark's tasks (`gnomon.jobs.build`), and key-value folders.

- `engine`            the engine that works in Spark's tasks
- `scan`              keys and pointers of source files
- `write`             index files, written in tasks
- `page_maps`         page maps, written in tasks
- `sort_prefix`       texts with a common prefix, sorted fast
- `key_value_folder`  a DataFrame as a key-value folder
"""

from gnomon.indexer.build.engine import SparkEngine, build, import_dione
from gnomon.indexer.build.key_value_folder import write_btree

__all__ = ["SparkEngine", "build", "import_dione", "write_btree"]
