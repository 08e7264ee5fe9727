"""Parts of pyarrow that cost much to import, imported when they are first used.

`pyarrow.compute` describes each of its functions, and `pyarrow.orc` and `pyarrow.parquet` load the clients of all
stores: together as much as pyarrow itself. A look-up of one key needs none of them.

`from gnomon.base.arrow import compute as pc` stands for `import pyarrow.compute as pc`.
"""

from typing import TYPE_CHECKING

from gnomon.base.later import Later

if TYPE_CHECKING:  # a type checker sees the modules themselves
    from pyarrow import compute, csv, orc, parquet
else:
    compute = Later("pyarrow.compute")
    csv = Later("pyarrow.csv")
    orc = Later("pyarrow.orc")
    parquet = Later("pyarrow.parquet")

__all__ = ["compute", "csv", "orc", "parquet"]
