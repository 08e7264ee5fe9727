"""`python -m tests.golden.dione_tables.pack FOLDER` packs what deploy/dione/DioneTables.scala wrote to a folder."""

import gzip
import json
import sys
import tarfile
from pathlib import Path

from tests.golden.dione_tables import FOLDER

WAREHOUSE = Path("warehouse", "dione.db")


def is_kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = info.name.rpartition("/")[2]
    return None if name == "_SUCCESS" or name.endswith(".crc") else info


def pack(folder: Path) -> None:
    """Write the archives, their description, and the rows. ValueError where tables differ in their rows."""
    tables, rows = [], []
    for path in sorted(folder.glob("*.json")):
        described = json.loads(path.read_text())
        name, found = path.stem, sorted(described.pop("rows"), key=lambda row: row["n"])
        if rows and [sorted(row.items()) for row in rows] != [sorted(row.items()) for row in found]:
            raise ValueError(f"{name} has other rows")
        rows = found
        described["root"] += f"/{WAREHOUSE.name}"
        tables.append({"name": name, **described})
        with tarfile.open(FOLDER / f"{name}.tar.gz", "w:gz") as archive:
            for one in (name, *(f"{name}_{'_'.join(keys)}" for keys in described["indexes"])):
                archive.add(folder / WAREHOUSE / one, one, filter=is_kept)
    (FOLDER / "tables.json").write_text(json.dumps(tables, indent=1) + "\n")
    with gzip.GzipFile(FOLDER / "rows.jsonl.gz", "wb", mtime=0) as lines:
        for row in rows:
            lines.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
