"""Contenders that fetch a row from a single file of a format, by its key or by its position in the file."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import polars as pl
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyorc

from bench.contenders import Answer, Contender, DuckDbOnFiles, PolarsOnFiles, PyarrowOnFiles, Row
from bench.format_files import data_file
from gnomon.commands.crawl import SCHEMA
from gnomon.shadow.storage import ReadStats, storage_at
from gnomon.shadow.values.row_values import python_values
from gnomon.sources import open_source
from gnomon.sources.pointers import OFFSET, SUB_OFFSET
from tests.opened import open_index

# For text formats the time stays text, as stored in the file.
DUCKDB_TYPES = (
    "{'url': 'VARCHAR', 'merchant_id': 'BIGINT', 'crawl_ts': 'VARCHAR', 'status': 'INTEGER', 'html': 'VARCHAR', "
    "'dt': 'VARCHAR'}"
)
POLARS_TYPES = dict.fromkeys(SCHEMA.names, pl.String) | {"merchant_id": pl.Int64, "status": pl.Int32}


class GnomonByPointer(Contender):
    """The reader of the format alone: the position of the row was looked up before."""

    name = "Gnomon, by pointer alone"
    is_by_position = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        spec = open_index(str(extra)).spec
        self._storage, self._path = storage_at(str(source)), data_file(source).name
        (key,) = spec.stored_keys
        self._pointers: dict[str, tuple[int, int]] = {}
        with self._storage.open(self._path) as reader:
            self._file = open_source(reader, spec.format, spec.read_options)
            for batch in self._file.scan(reader, [key.name]):
                pointers = zip(batch[OFFSET].to_pylist(), batch[SUB_OFFSET].to_pylist(), strict=True)
                self._pointers.update(zip(batch[key.name].to_pylist(), pointers, strict=True))

    def fetch(self, key: str) -> Answer:
        stats = ReadStats()
        with self._storage.open(self._path, stats) as reader:
            table = self._file.fetch(reader, [self._pointers[key]], SCHEMA.names)
        columns = [python_values(column) for column in table.columns]
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in zip(*columns, strict=True)]
        return Answer(rows, stats.bytes)


class DuckDbOnFile(DuckDbOnFiles):
    name = "DuckDB on the file"
    relations: ClassVar = {
        ".parquet": "read_parquet('{}')",
        ".csv": f"read_csv('{{}}', header = true, columns = {DUCKDB_TYPES})",
        ".jsonl": f"read_json('{{}}', format = 'newline_delimited', columns = {DUCKDB_TYPES})",
    }

    def relation(self, source: Path) -> str:
        path = data_file(source)
        return self.relations[path.suffix].replace("{}", str(path).replace("'", "''"))


class PolarsOnFile(PolarsOnFiles):
    name = "Polars on the file"
    scanners: ClassVar[dict[str, Callable[[Path], pl.LazyFrame]]] = {
        ".parquet": pl.scan_parquet,
        ".csv": partial(pl.scan_csv, schema=POLARS_TYPES),
        ".jsonl": partial(pl.scan_ndjson, schema=POLARS_TYPES),
    }

    def frame(self, source: Path) -> pl.LazyFrame:
        path = data_file(source)
        return self.scanners[path.suffix](path)


class PyarrowOnFile(PyarrowOnFiles):
    name = "pyarrow dataset on the file"
    formats: ClassVar[dict[str, ds.FileFormat]] = {
        ".parquet": ds.ParquetFileFormat(),
        ".orc": ds.OrcFileFormat(),
        ".csv": ds.CsvFileFormat(pa_csv.ParseOptions(newlines_in_values=True)),
        ".jsonl": ds.JsonFileFormat(),
    }

    def dataset(self, source: Path) -> ds.Dataset:
        path = data_file(source)
        schema = SCHEMA if path.suffix in (".csv", ".jsonl") else None  # formats that do not declare their columns
        return ds.dataset(path, schema, self.formats[path.suffix])


class PolarsReadsAvro(Contender):
    """Polars has no lazy scan of Avro: each fetch reads the file."""

    name = "Polars, read_avro"
    scans = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._path = data_file(source)

    def fetch(self, key: str) -> Answer:
        return Answer(pl.read_avro(self._path).filter(pl.col("url") == key).to_dicts())


class FastavroScan(Contender):
    name = "fastavro, all rows"
    scans = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        self._path = data_file(source)

    def fetch(self, key: str) -> Answer:
        with self._path.open("rb") as file:
            return Answer([row for row in self._rows(file) if row["url"] == key])

    def _rows(self, file: Any) -> Iterator[Row]:
        yield from fastavro.reader(file)


class PyorcByRow(Contender):
    """pyorc with the number of the row, in a file kept open."""

    name = "pyorc, by row number alone"
    is_by_position = True

    def __init__(self, source: Path, extra: Path) -> None:
        super().__init__(source, extra)
        path = data_file(source)
        with path.open("rb") as file:
            self._numbers = {url: number for number, (url,) in enumerate(pyorc.Reader(file, column_names=["url"]))}
        self._rows = pyorc.Reader(self.closing.enter_context(path.open("rb")))

    def fetch(self, key: str) -> Answer:
        self._rows.seek(self._numbers[key])
        return Answer([dict(zip(SCHEMA.names, next(self._rows), strict=True))])
