"""The takeover of indexes that Dione made.

- `import_index`  the import: a build whose entries come from Dione's index
- `dione_index`   the files and columns of an index of Dione's
- `takeover`      its entries, with pointers translated and compared with the source
- `engine`        the engine of such a build
"""

from gnomon.jobs.dione.import_index import ImportResult, import_dione
from gnomon.jobs.dione.takeover import LeftOut

__all__ = ["ImportResult", "LeftOut", "import_dione"]
