"""Verification: the files of a snapshot are undamaged and consistent, and pointers lead to their rows.

- `snapshot`           verifies a build before its commit, or a whole snapshot
- `manifests`          the snapshot and its manifests
- `index_files`        the index files of a segment
- `key_value_entries`  the index files of a key-value folder
- `entry_order`        the order of the entries of one key
- `pointers`           rows read back and compared
- `look_ups`           sampled keys, looked up as a user does, and the count of rows by a table's own library
- `samples`            the rows that are looked up
- `append_checks`      the log of appends
- `external_table`     the rows of an engine that reads the folder as a table
- `report`             the faults that were found
"""

from gnomon.shadow.verify.append_checks import appends_report
from gnomon.shadow.verify.external_table import PlainTable, plain_table
from gnomon.shadow.verify.index_files import row_hashes
from gnomon.shadow.verify.report import Report
from gnomon.shadow.verify.snapshot import ENTRIES_PER_FILE, sampled, verify, verify_sample

__all__ = [
    "ENTRIES_PER_FILE",
    "PlainTable",
    "Report",
    "appends_report",
    "plain_table",
    "row_hashes",
    "sampled",
    "verify",
    "verify_sample",
]
