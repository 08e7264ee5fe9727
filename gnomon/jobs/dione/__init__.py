"""The import of an index of Dione, and the export of an index in Dione's format.

- `import_index`   the import: a build whose entries come from Dione's index
- `export_index`   the export
- `export_folder`  the files of an export, and their folder, to which one export at a time writes
- `dione_index`    the files and columns of an index of Dione
- `entry_import`   the entries of an index of Dione, with pointers translated and compared with the source
"""

from gnomon.jobs.dione.dione_index import DATA_TABLE
from gnomon.jobs.dione.entry_import import LeftOut
from gnomon.jobs.dione.export_index import Exported, export_dione, table_properties
from gnomon.jobs.dione.import_index import ImportResult, import_dione

__all__ = ["DATA_TABLE", "Exported", "ImportResult", "LeftOut", "export_dione", "import_dione", "table_properties"]
