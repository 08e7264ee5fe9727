"""The rows of some keys in all versions of a lake table.

- `all_versions`    the search
- `table_versions`  the files and deleted rows of one version, and files that no version lists
- `erasure`         the proof that no file of a table holds some keys
"""

from gnomon.shadow.search.all_versions import AllVersions, VersionedRow, find_all_versions
from gnomon.shadow.search.erasure import Erasure, Holder, prove_erased

__all__ = [
    "AllVersions",
    "Erasure",
    "Holder",
    "VersionedRow",
    "find_all_versions",
    "prove_erased",
]
