"""Parts of pyarrow that cost much to import, imported when they are first used.

`pyarrow.compute` describes each of its functions, and `pyarrow.orc` and `pyarrow.parquet` load the clients of all
stores: together as much as pyarrow itself. A look-up of one key needs none of them.

`from gnomon.base.arrow import compute as pc` stands for `import pyarrow.compute as pc`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import compute, csv, orc, parquet

__all__ = ["compute", "csv", "orc", "parquet"]


class _Later:
    """A module that is imported at the first use of one of its names. Threads may use it at the same time."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._module), name)
        setattr(self, name, value)  # the next use is an ordinary attribute
        return value


if not TYPE_CHECKING:  # a type checker sees the modules themselves
    compute = _Later("pyarrow.compute")
    csv = _Later("pyarrow.csv")
    orc = _Later("pyarrow.orc")
    parquet = _Later("pyarrow.parquet")
