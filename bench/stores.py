"""Files that find entries by key, each written from one sorted Arrow table and read back. One key has one entry."""

import sqlite3
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import numpy as np
import pyarrow as pa
from rocksdict import Options, Rdict, SstFileWriter

from gnomon.btree import BTreeReader, BTreeWriter, Column, EntrySchema
from gnomon.btree.__main__ import LocalFile
from gnomon.btree.blocks import Block, LookupStats
from gnomon.btree.keys import KeyBatch, stored_array, stored_values, type_of_arrow

Key = str | int
Value = tuple[Any, ...]
BATCH_ROWS = 1 << 16
WARMING = 50  # one key in so many is asked for beforehand: a leaf has more
FIXED = struct.Struct("<qii")  # the numbers of an entry, before its text


def key_column(table: pa.Table) -> str:
    """The name of the key column. A table of entries has the key, then the value columns."""
    name: str = table.column_names[0]
    return name


def entry_schema(table: pa.Table) -> EntrySchema:
    """The columns as in an index: a key may be null, a pointer may not."""
    columns = [Column(field.name, type_of_arrow(field.type) or "", i == 0) for i, field in enumerate(table.schema)]
    return EntrySchema(tuple(columns[:1]), tuple(columns[1:]))


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The entries as tuples, a batch at a time."""
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


class Store(ABC):
    """A kind of file that is written, opened, queried and closed. A row is (value, ...), in the order of the table."""

    name: ClassVar[str]
    scans: ClassVar[bool] = False  # reads everything to find one key

    def __init__(self, folder: Path) -> None:
        self.path = folder / type(self).__name__

    @abstractmethod
    def write(self, table: pa.Table) -> None: ...

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def get(self, key: Key) -> Value | None: ...

    @abstractmethod
    def get_many(self, keys: Sequence[Key]) -> list[Value | None]: ...

    @abstractmethod
    def contains_many(self, keys: Sequence[Key]) -> list[bool]: ...

    @abstractmethod
    def scan(self) -> int:
        """Read all entries in key order, in the form that the store gives fastest. Returns their number."""

    def check(self) -> int | None:
        """Check the whole file. Returns its number of entries, or None where the store has no check."""
        return None

    def cost_of_get(self, key: Key) -> LookupStats | None:
        """Nodes and bytes that a look-up in an open file reads, where the store counts them."""
        return None

    @property
    def bytes(self) -> int:
        files = [self.path] if self.path.is_file() else [path for path in self.path.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files)


class Gnomon(Store):
    """Our index file."""

    name = "Gnomon"

    def write(self, table: pa.Table) -> None:
        writer = BTreeWriter(entry_schema(table))
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            writer.write(batch)
        with open(self.path, "wb") as file:
            file.writelines(writer.finish().chunks)

    def open(self) -> None:
        self._file = LocalFile(str(self.path))
        self._tree = BTreeReader(self._file)

    def close(self) -> None:
        self._file.close()

    def get(self, key: Key) -> Value | None:
        found = self._tree.get((key,))
        return found[0] if found else None

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        batch = self._batch(keys)
        values, answers = self._tree.schema.values, list[Value | None]([None] * len(keys))
        for piece in self._tree.match(batch.keys, [column.name for column in values]):
            columns = [stored_values(one, column.type) for one, column in zip(piece.columns, values, strict=True)]
            rows = list(zip(*columns, strict=True))
            for places, found in batch.spread(piece.keys):
                for place, row in zip(places.tolist(), found.tolist(), strict=True):
                    answers[place] = rows[row]
        return answers

    def contains_many(self, keys: Sequence[Key]) -> list[bool]:
        batch = self._batch(keys)
        there = np.zeros(len(batch.keys), bool)
        for piece in self._tree.match(batch.keys, []):
            there[piece.keys] = True
        return batch.by_row(there).tolist()

    def _batch(self, keys: Sequence[Key]) -> KeyBatch:
        types = self._tree.schema.key_types
        return KeyBatch([stored_array(keys, types[0])], types)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._tree.scan_batches())

    def check(self) -> int | None:
        return self._tree.check()

    def cost_of_get(self, key: Key) -> LookupStats | None:
        stats = LookupStats()
        self._tree.get((key,), stats)
        return stats


class EveryLeaf(dict[int, Block]):
    """A cache of leaves without a limit."""

    def put(self, offset: int, leaf: Block) -> None:
        self[offset] = leaf

    add = put

    def get_many(self, offsets: Sequence[int]) -> list[Block | None]:
        return [self.get(offset) for offset in offsets]

    def room(self) -> int:
        return 1 << 40


class GnomonInMemory(Gnomon):
    """Our index file, whose leaves were used before."""

    name = "Gnomon, leaves in memory"

    def write(self, table: pa.Table) -> None:
        super().write(table)
        self._some: list[Key] = table.column(0)[::WARMING].to_pylist()

    def open(self) -> None:
        self._file = LocalFile(str(self.path))
        self._tree = BTreeReader(self._file, leaves=EveryLeaf())
        self.contains_many(self._some)


class PlainAvro(Store):
    """The same rows as fastavro writes and reads them: any look-up is a scan."""

    name = "plain Avro, fastavro"
    scans = True

    def write(self, table: pa.Table) -> None:
        names = table.column_names
        rows = (dict(zip(names, row, strict=True)) for row in rows_of(table))
        with open(self.path, "wb") as file:
            fastavro.writer(file, _without_link(entry_schema(table)), rows, codec="deflate")

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _rows(self) -> Iterator[Value]:
        with open(self.path, "rb") as file:
            for row in fastavro.reader(file):
                yield tuple(row.values())

    def get(self, key: Key) -> Value | None:
        return next((row[1:] for row in self._rows() if row[0] == key), None)

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        wanted = set(keys)
        found = {row[0]: row[1:] for row in self._rows() if row[0] in wanted}
        return [found.get(key) for key in keys]

    def contains_many(self, keys: Sequence[Key]) -> list[bool]:
        return [row is not None for row in self.get_many(keys)]

    def scan(self) -> int:
        return sum(1 for _ in self._rows())


def _without_link(schema: EntrySchema) -> dict[str, Any]:
    avro: dict[str, Any] = schema.to_avro()
    return {**avro, "fields": avro["fields"][:-1]}


class Sqlite(Store):
    """A table with an index on the key."""

    name = "SQLite"

    def write(self, table: pa.Table) -> None:
        key = key_column(table)
        self.path.unlink(missing_ok=True)
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"create table entries ({', '.join(table.column_names)})")
            places = ", ".join("?" * table.num_columns)
            connection.executemany(f"insert into entries values ({places})", rows_of(table))
            connection.execute(f"create index by_key on entries ({key})")
        connection.close()

    def open(self) -> None:
        self._connection = sqlite3.connect(self.path)
        names = [one[1] for one in self._connection.execute("pragma table_info(entries)")]
        self._get = f"select {', '.join(names[1:])} from entries where {names[0]} = ?"
        self._has = f"select 1 from entries where {names[0]} = ?"
        self._all = f"select * from entries order by {names[0]}"

    def close(self) -> None:
        self._connection.close()

    def get(self, key: Key) -> Value | None:
        row: Value | None = self._connection.execute(self._get, (key,)).fetchone()
        return row

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        return [self.get(key) for key in keys]

    def contains_many(self, keys: Sequence[Key]) -> list[bool]:
        return [self._connection.execute(self._has, (key,)).fetchone() is not None for key in keys]

    def scan(self) -> int:
        return sum(1 for _ in self._connection.execute(self._all))

    def check(self) -> int | None:
        (verdict,) = self._connection.execute("pragma integrity_check").fetchone()
        if verdict != "ok":
            raise RuntimeError(verdict)
        return int(self._connection.execute("select count(*) from entries").fetchone()[0])


class RocksDb(Store):
    """One sorted table of RocksDB, written in order and ingested into a database. An entry's value is packed bytes."""

    name = "RocksDB, one SST file"

    def write(self, table: pa.Table) -> None:
        Rdict.destroy(str(self.path))
        sst = self.path.with_suffix(".sst")
        writer = SstFileWriter(options=Options(raw_mode=True))
        writer.open(str(sst))
        for key, name, *numbers in rows_of(table):
            writer[_packed(key)] = FIXED.pack(*numbers) + name.encode()
        writer.finish()
        database = Rdict(str(self.path), Options(raw_mode=True))
        database.ingest_external_file([str(sst)])
        database.close()
        sst.unlink()

    def open(self) -> None:
        self._database = Rdict(str(self.path), Options(raw_mode=True))

    def close(self) -> None:
        self._database.close()

    def get(self, key: Key) -> Value | None:
        return _unpacked(self._database.get(_packed(key)))

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        return [_unpacked(value) for value in self._database.get([_packed(key) for key in keys])]

    def contains_many(self, keys: Sequence[Key]) -> list[bool]:
        return [_packed(key) in self._database for key in keys]

    def scan(self) -> int:
        return sum(1 for _, value in self._database.items() if _unpacked(value))


def _packed(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else struct.pack(">Q", key + (1 << 63))


def _unpacked(value: bytes | None) -> Value | None:
    return None if value is None else (value[FIXED.size :].decode(), *FIXED.unpack_from(value))


STORES: tuple[type[Store], ...] = (Gnomon, GnomonInMemory, PlainAvro, Sqlite, RocksDb)
