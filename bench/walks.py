"""The files and functions of Gnomon that one operation passes: `python -m bench.walks`.

A newcomer who follows a key through the code reads them. Counted are the functions that run, in all threads; what runs
at an import does not count. The data is small and made anew, in a temporary folder.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import gnomon
from gnomon.service.application import create_app
from gnomon.service.settings import Settings

ROOT = Path(gnomon.__file__).parent.parent.resolve()
ROWS = 1500


class Walk:
    """Records the functions of Gnomon that run during a call, also in threads that begin after it was made."""

    def __init__(self) -> None:
        self._found: set[CodeType] | None = None
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and self._found is not None:
            self._found.add(frame.f_code)

    def of(self, call: Callable[[], object]) -> dict[str, set[str]]:
        """The functions by their files."""
        self._found = set()
        sys.setprofile(self._note)
        try:
            call()
        finally:
            sys.setprofile(None)
            found, self._found = self._found, None
        by_file: dict[str, set[str]] = {}
        for code in found:
            if code.co_filename.startswith("<"):  # a frozen module of Python, or a method that dataclass wrote
                continue
            path = Path(code.co_filename).resolve()
            if code.co_name != "<module>" and path.is_relative_to(ROOT) and not {".venv", "bench"} & set(path.parts):
                by_file.setdefault(str(path.relative_to(ROOT)), set()).add(code.co_qualname)
        return by_file


def walks(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Each operation with the functions that it runs, by file."""
    source, index = folder / "source", folder / "index"
    source.mkdir()
    for number in range(3):
        keys = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(
            pa.table({"id": list(keys), "text": [f"row {key}" for key in keys]}), source / f"{number}.parquet"
        )
    gnomon.build(None, str(source), str(index), ["id"], buckets=2)
    walk = Walk()
    opened = gnomon.open_index(str(index))
    opened.fetch(7)
    found = {"open an index": walk.of(lambda: gnomon.open_index(str(index)))}
    found["fetch one key, warm"] = walk.of(lambda: opened.fetch(7))
    transport = httpx.ASGITransport(create_app(Settings(indexes=[str(index)])))

    async def get() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as client:
            (await client.get("/rows/7")).raise_for_status()

    asyncio.run(get())
    found["GET /rows/7, warm"] = walk.of(lambda: asyncio.run(get()))
    batch = pa.table({"id": list(range(2 * ROWS, 4 * ROWS)), "text": ["new"] * 2 * ROWS})
    found["dedup of 3,000 rows"] = walk.of(lambda: gnomon.append_new(None, str(index), batch, "batch"))
    pq.write_table(pa.table({"id": [-1], "text": ["new"]}), source / "new.parquet")
    found["build of one new file"] = walk.of(lambda: gnomon.build(None, str(source), str(index), ["id"]))
    return found


def main(files: Annotated[bool, typer.Option(help="Name the files, too.")] = False) -> None:
    """Print the number of files and functions that each operation passes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, by_file in walks(Path(folder)).items():
            print(f"{name:24} {len(by_file):4} files {sum(map(len, by_file.values())):5} functions")
            for file in sorted(by_file) if files else ():
                print(f"    {file}: {', '.join(sorted(by_file[file]))}")


if __name__ == "__main__":
    typer.run(main)
