"""The tables that a source may be: their partitions, their live files, and the rows deleted in them.

- `table_source`       the interface of a source; tables of Spark's catalog
- `plain_files`        a folder of files, or one file, that belongs to no lake table
- `partitions`         Hive-style partition folders
- `lake_source`        a version of a Delta or Iceberg table: its live files and deleted rows
- `delta`              Delta Lake tables, with deltalake (extra `delta`)
- `iceberg`            Iceberg tables, with pyiceberg (extra `iceberg`)
- `iceberg_files`      the live files of an Iceberg snapshot, from its manifests, and which deletes apply to each
- `iceberg_credentials`  the credentials that an Iceberg REST catalog vends
- `iceberg_deletes`    the deleted rows of an Iceberg snapshot
- `lake_append`        new files of a Delta or Iceberg table, and the commit that adds them
- `delta_append`       the same for Delta Lake tables
- `iceberg_append`     the same for Iceberg tables
- `delta_change`       the commit that deletes rows of a Delta table by position, and adds files with it
- `delta_log`          Delta's log, read for some data files: their entries with all members, and deletion vectors
- `iceberg_change`     the same for Iceberg tables
- `iceberg_snapshot`   the files of a new snapshot of an Iceberg table, and its commit
- `rewritten`          a Parquet data file without some of its rows, for tables that keep no deletes beside their files
"""

from gnomon.shadow.tables.lake_append import (
    AppendTarget,
    Change,
    Deleted,
    FolderOf,
    Look,
    NewFile,
    PlannedChange,
    Split,
    TableCommit,
    append_target,
    check_commit,
    check_deletes,
    clear_attempts,
    commit_change,
    commit_to_table,
    last_number,
)
from gnomon.shadow.tables.lake_source import MAIN, LakeSource, govern_table, is_lake, lake_source
from gnomon.shadow.tables.partitions import (
    NULL_VALUE,
    TEXT,
    as_partition_value,
    asked_values,
    base_of,
    check_where,
    matches,
    numbered,
    partition_array,
    partition_columns,
    partition_folders,
    partition_of,
    partition_stored,
    partition_values,
    shortened,
    shown_part,
    stored_partition,
    typed_folders,
    value_text,
)
from gnomon.shadow.tables.plain_files import LakeTable, PlainFiles, check_plain_files, table_among, table_around
from gnomon.shadow.tables.table_source import (
    TABLE_PREFIX,
    EqualityDeletes,
    LakeContent,
    LakeFile,
    Recorded,
    Table,
    TableHistory,
    TableSource,
    TableVersion,
    Versions,
    check_constants,
)

__all__ = [
    "MAIN",
    "NULL_VALUE",
    "TABLE_PREFIX",
    "TEXT",
    "AppendTarget",
    "Change",
    "Deleted",
    "EqualityDeletes",
    "FolderOf",
    "LakeContent",
    "LakeFile",
    "LakeSource",
    "LakeTable",
    "Look",
    "NewFile",
    "PlainFiles",
    "PlannedChange",
    "Recorded",
    "Split",
    "Table",
    "TableCommit",
    "TableHistory",
    "TableSource",
    "TableVersion",
    "Versions",
    "append_target",
    "as_partition_value",
    "asked_values",
    "base_of",
    "check_commit",
    "check_constants",
    "check_deletes",
    "check_plain_files",
    "check_where",
    "clear_attempts",
    "commit_change",
    "commit_to_table",
    "govern_table",
    "is_lake",
    "lake_source",
    "last_number",
    "matches",
    "numbered",
    "partition_array",
    "partition_columns",
    "partition_folders",
    "partition_of",
    "partition_stored",
    "partition_values",
    "shortened",
    "shown_part",
    "stored_partition",
    "table_among",
    "table_around",
    "typed_folders",
    "value_text",
]
