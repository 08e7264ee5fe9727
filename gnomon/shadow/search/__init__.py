"""The rows of some keys in all versions of a lake table.

- `all_versions`    the search
- `table_versions`  the files and deleted rows of one version
"""

from gnomon.shadow.search.all_versions import AllVersions, VersionedRow, find_all_versions

__all__ = [
    "AllVersions",
    "VersionedRow",
    "find_all_versions",
]
