"""Commits: a build, an append, or another change of the metadata, visible as a whole or not at all.

- `publishing`    puts the next snapshot, create-only
- `rebase`        which changes of a build remain when other programs committed first
- `append_log`    the log of appends to the source
- `full_reindex`  commits an index of all files in place of a damaged one
- `relocate`      takes over a source that was moved or copied; records page maps of indexed files
"""

from gnomon.shadow.commit.append_log import (
    REJECTED_FOLDER,
    Append,
    AppendedFile,
    AppendLog,
    Batch,
    abandon,
    commit_append,
    find_batch,
    is_abandoned,
    is_appended,
    mark_appended,
    move_files,
    open_log,
    plan_commit,
    read_log,
    settle,
    staging_folder,
)
from gnomon.shadow.commit.full_reindex import newest_number, publish_full, spec_on_record
from gnomon.shadow.commit.publishing import Changes, made_for, new_segment_id, publish, wait, write_index_file
from gnomon.shadow.commit.rebase import Current, wider
from gnomon.shadow.commit.relocate import Adoption, adopt, adoption, record

__all__ = [
    "REJECTED_FOLDER",
    "Adoption",
    "Append",
    "AppendLog",
    "AppendedFile",
    "Batch",
    "Changes",
    "Current",
    "abandon",
    "adopt",
    "adoption",
    "commit_append",
    "find_batch",
    "is_abandoned",
    "is_appended",
    "made_for",
    "mark_appended",
    "move_files",
    "new_segment_id",
    "newest_number",
    "open_log",
    "plan_commit",
    "publish",
    "publish_full",
    "read_log",
    "record",
    "settle",
    "spec_on_record",
    "staging_folder",
    "wait",
    "wider",
    "write_index_file",
]
