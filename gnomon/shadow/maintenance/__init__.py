"""Maintenance of an index: compact, rebucket and vacuum.

- `compaction`  compact, rebucket, and the merge of small segments
- `masking`     the rows that a lake table has deleted, as masks
- `vacuuming`   removes the files that no kept snapshot needs
"""

from gnomon.shadow.maintenance.compaction import CompactResult, compact, publish_build, rebucket
from gnomon.shadow.maintenance.masking import check_mask, masks_at
from gnomon.shadow.maintenance.vacuuming import VacuumResult, check_no_other_files, vacuum

__all__ = [
    "CompactResult",
    "VacuumResult",
    "check_mask",
    "check_no_other_files",
    "compact",
    "masks_at",
    "publish_build",
    "rebucket",
    "vacuum",
]
