"""The parts of an index file and of its reader, compared with their alternatives: compressors, codecs, node lengths,
Dione's layout, and decoders of a whole file and of one node."""

import io
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
from isal import isal_zlib
from zlib_ng import zlib_ng

from bench.page import digits, head, row
from bench.stores import BATCH_ROWS, entry_schema
from gnomon.base.compression import RAW_DEFLATE, zstd
from gnomon.base.readers import MemoryFile
from gnomon.btree import BTreeReader, BTreeWriter
from gnomon.btree import format as fmt
from gnomon.btree.blocks import LookupStats
from gnomon.btree.dione import DioneWriter
from gnomon.btree.node import NodeDecoder
from gnomon.btree.schema import file_schema

KEYS = 500
NODE_KIB = (4, 8, 16, 32, 64)
CODECS = ("null", "snappy")
LAYOUTS = (*((codec, 8) for codec in CODECS), *((codec, kib) for codec in ("deflate", "zstandard") for kib in NODE_KIB))
DIONE_RECORDS, DIONE_HEIGHT = 1000, 2  # Dione's defaults
DIONES = f"Dione's layout: deflate, {DIONE_RECORDS:,} records"
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "isal, level 2 (ours)": lambda data: _pack(isal_zlib.compressobj(2, isal_zlib.DEFLATED, RAW_DEFLATE), data),
    "isal, level 3": lambda data: _pack(isal_zlib.compressobj(3, isal_zlib.DEFLATED, RAW_DEFLATE), data),
    "zlib-ng, level 1": lambda data: _pack(zlib_ng.compressobj(1, zlib_ng.DEFLATED, RAW_DEFLATE), data),
    "zlib-ng, level 6": lambda data: _pack(zlib_ng.compressobj(6, zlib_ng.DEFLATED, RAW_DEFLATE), data),
    "zlib, level 1": lambda data: _pack(zlib.compressobj(1, zlib.DEFLATED, RAW_DEFLATE), data),
    "zlib, level 6 (Dione's)": lambda data: _pack(zlib.compressobj(6, zlib.DEFLATED, RAW_DEFLATE), data),
    "zstandard, level 1 (ours)": lambda data: zstd.compress(data, 1),
    "zstandard, level 5": lambda data: zstd.compress(data, 5),
    "zstandard, level 9": lambda data: zstd.compress(data, 9),
}


SCANS = (
    "whole file, checked, in key order, as Arrow batches (ours)",
    "whole file in key order, as tuples (ours, node by node)",
    "whole file in file order, as dicts: fastavro",
    "whole file in file order, as a frame: Polars",
)
NODES = ("one node for a look-up: keys and links (ours)", "one node for a look-up: fastavro")


def _pack(packer: Any, data: bytes) -> bytes:
    return packer.compress(data) + packer.flush()


def _write(table: pa.Table, codec: str, node_bytes: int) -> bytes:
    writer = BTreeWriter(entry_schema(table), codec=codec, node_bytes=node_bytes)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        writer.write(batch)
    return b"".join(writer.finish().chunks)


def _write_as_dione(table: pa.Table) -> bytes:
    writer = DioneWriter(entry_schema(table), DIONE_RECORDS, DIONE_HEIGHT)
    writer.write(table)
    return b"".join(writer.finish().chunks)


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1e6


def choices(table: pa.Table, rounds: int) -> str:
    """The tables as Markdown, measured with these entries."""
    return "\n".join([_compressors(table, rounds), _files(table, rounds), _decoders(table, rounds)])


def _compressors(table: pa.Table, rounds: int) -> str:
    nodes = [records for _, records in _nodes(table)]
    times: dict[str, list[float]] = {name: [] for name in COMPRESSORS}
    for _ in range(rounds):
        for name, pack in COMPRESSORS.items():
            times[name].append(_timed(lambda pack=pack: [pack(node) for node in nodes]))  # type: ignore[misc]
    lines = head([f"compression of {len(nodes):,} nodes of 8 KiB", "bytes an entry", "µs an entry"])
    for name, pack in COMPRESSORS.items():
        size = sum(len(pack(node)) for node in nodes)
        lines.append(row([name, digits(size / len(table)), digits(statistics.median(times[name]) / len(table))]))
    return "\n".join(lines) + "\n"


def _frames(data: bytes) -> Iterator[fmt.BlockFrame]:
    """Each block of a file, in order."""
    header = fmt.decode_header(data, "memory")
    at = header.end if header else len(data)
    while at < len(data):
        frame = fmt.decode_block_frame(data[at : at + fmt.BLOCK_HEAD_BYTES], at, len(data), "memory")
        yield frame
        at = frame.end


def _nodes(table: pa.Table) -> list[tuple[int, bytes]]:
    """The count and the bytes of the records of each node of 8 KiB."""
    data = _write(table, "null", 8 * 1024)
    return [(one.count, data[one.payload : one.payload + one.payload_bytes]) for one in _frames(data)]


def _files(table: pa.Table, rounds: int) -> str:
    keys = [(key.as_py(),) for key in random.Random(0).sample(list(table[0]), min(KEYS, len(table)))]
    figures = ("bytes an entry", "of Dione's", "write µs an entry", "get µs", "bytes a get", "check µs an entry")
    lines = head(["codec, node before compression", *figures])
    as_dione = len(_write_as_dione(table))
    for codec, kib in LAYOUTS:
        write = partial(_write, table, codec, kib * 1024)
        lines.append(_file(f"{codec}, {kib} KiB", write, len(table), as_dione, keys, rounds))
    lines.append(_file(DIONES, partial(_write_as_dione, table), len(table), as_dione, keys, rounds))
    return "\n".join(lines) + "\n"


def _file(
    name: str, write: Callable[[], bytes], entries: int, as_dione: int, keys: Sequence[tuple[str]], rounds: int
) -> str:
    data = write()
    writes, gets, checks, stats = [], [], [], LookupStats()
    for _ in range(rounds):
        writes.append(_timed(write) / entries)
        tree = BTreeReader(MemoryFile(data), head_bytes=1)
        gets.append(_time_of_get(tree, keys))
        checks.append(_timed(tree.check) / entries)
    for key in keys:
        tree.get(key, stats)
    times = [statistics.median(one) for one in (writes, gets, checks)]
    figures = [len(data) / entries, len(data) / as_dione, *times[:2], stats.bytes / len(keys), times[2]]
    return row([name, *map(digits, figures)])


def _decoders(table: pa.Table, rounds: int) -> str:
    data = _write(table, "deflate", 8 * 1024)
    tree = BTreeReader(MemoryFile(data))
    ways: dict[str, Callable[[], object]] = {
        SCANS[0]: lambda: [batch.num_rows for batch in tree.scan_batches()],
        SCANS[1]: lambda: sum(1 for _ in tree.scan()),
        SCANS[2]: lambda: sum(1 for _ in fastavro.reader(io.BytesIO(data))),
        SCANS[3]: lambda: pl.read_avro(io.BytesIO(data)),
    }
    pairs = _nodes(table)
    decoder = NodeDecoder(file_schema(entry_schema(table).to_avro(), table.column_names[:1], table.column_names[1:]))
    ways[NODES[0]] = lambda: [decoder.node(count, records) for count, records in pairs]
    ways[NODES[1]] = lambda: [decoder.rows(count, records) for count, records in pairs]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(_timed(work) / len(table))
    lines = head(["decoder", "µs an entry"])
    lines += [row([name, digits(statistics.median(times[name]))]) for name in ways]
    return "\n".join(lines) + "\n"


def _time_of_get(tree: BTreeReader, keys: Sequence[tuple[str]]) -> float:
    tree.contains_many(keys)  # to decode the upper levels
    return _timed(lambda: [tree.get(key) for key in keys]) / len(keys)
