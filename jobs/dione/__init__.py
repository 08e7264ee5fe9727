"""Indexes of Dione's: taken over, and written for its readers.

- `import_index`  the import: a build whose entries come from Dione's index
- `export_index`  an index as one of Dione's
- `export_files`  its files
- `export_folder` where they are written, by one export at a time
- `dione_index`   the files and columns of an index of Dione's
- `takeover`      its entries, with pointers translated and compared with the source
- `engine`        the engine of such a build
"""

from gnomon.jobs.dione.dione_index import DATA_TABLE
from gnomon.jobs.dione.export_index import Exported, export_dione
from gnomon.jobs.dione.import_index import ImportResult, import_dione
from gnomon.jobs.dione.takeover import LeftOut

__all__ = ["DATA_TABLE", "Exported", "ImportResult", "LeftOut", "export_dione", "import_dione"]
