"""Builds by Spark's tasks (`gnomon.jobs.build`), and key-value folders.

- `engine`            the engine that works in Spark's tasks
- `write`             index files, scanned, sorted and written in tasks
- `key_value_folder`  a DataFrame as a key-value folder
"""

from gnomon.indexer.build.engine import SparkEngine, build, import_dione
from gnomon.indexer.build.key_value_folder import write_btree

__all__ = ["SparkEngine", "build", "import_dione", "write_btree"]
