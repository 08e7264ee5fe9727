"""Verification: the files of a snapshot are undamaged and consistent, and pointers lead to their rows.

- `snapshot`     verifies a build before its commit, or a whole snapshot
- `manifests`    the snapshot, its manifests and the log of appends
- `index_files`  the index files of a segment, and the order of their entries
- `pointers`     rows read back and compared
- `look_ups`     sampled keys, looked up as a user does, and the entries of key-value folders
- `report`       the faults that were found, and the rows that are sampled
"""

from gnomon.shadow.verify.index_files import entry_hashes
from gnomon.shadow.verify.manifests import appends_report
from gnomon.shadow.verify.report import PlainTable, Report, plain_table
from gnomon.shadow.verify.snapshot import ENTRIES_PER_FILE, sampled, verify, verify_sample

__all__ = [
    "ENTRIES_PER_FILE",
    "PlainTable",
    "Report",
    "appends_report",
    "entry_hashes",
    "plain_table",
    "sampled",
    "verify",
    "verify_sample",
]
