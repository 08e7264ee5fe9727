"""When memory runs out, the error is a MemoryError, not an error of the file."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.base.errors import check_memory

ROOT = Path(__file__).parents[2]

# Reads a file with decreasing limits of the address space, and prints the result of each.
UNDER_LIMITS = """
import ctypes, io, resource, sys
import fastavro, pyarrow as pa, pyarrow.orc as orc, pyarrow.parquet as pq
from gnomon.sources import SourceError, open_source
from gnomon.sources.pointers import OFFSET, SUB_OFFSET
from tests.sources.readers import BytesReader

name, codec = sys.argv[1:]
pa.set_memory_pool(pa.system_memory_pool())  # which gives back what is freed
texts = [chr(97 + number % 26) * 1_000_000 for number in range(60)]
table = pa.table({"id": list(range(60)), "text": texts, "tags": [[text] for text in texts]})
out = io.BytesIO()
if name == "parquet":
    pq.write_table(table, out, compression=codec, use_dictionary=False)
elif name == "orc":
    orc.write_table(table, out, compression=codec)
else:
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
    fields.append({"name": "tags", "type": {"type": "array", "items": "string"}})
    schema = {"type": "record", "name": "Row", "fields": fields}
    fastavro.writer(out, schema, table.to_pylist(), codec=codec, sync_interval=100_000_000)
reader = BytesReader(out.getvalue(), "lake/file")
file = open_source(reader, name)
pointers = []
for batch in file.scan(reader, ["id"]):
    pointers += zip(batch.column(OFFSET).to_pylist(), batch.column(SUB_OFFSET).to_pylist())
del table, batch, out

def scan():
    for batch in open_source(reader, name).scan(reader, ["id", "text", "tags"]):
        pass

def fetch():
    open_source(reader, name).fetch(reader, pointers[::3], ["id", "text", "tags"])

hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for read in (scan, fetch):
    for megabytes in (400, 200, 150, 100, 70, 50, 30, 15):
        ctypes.CDLL(None).malloc_trim(0)  # what is free counts as taken, too
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20), hard))
        try:
            read()
            outcome = "rows"
        except MemoryError:
            outcome = "memory"
        except SourceError as error:
            outcome = f"{type(error).__name__}: {error}"
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        print(read.__name__, outcome)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "codec"),
    [("parquet", "zstd"), ("parquet", "snappy"), ("parquet", "none"), ("avro", "deflate"), ("orc", "uncompressed")],
)
def test_a_sound_file_is_never_called_damaged_for_want_of_memory(name: str, codec: str) -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(128 << 10)  # fixed: what is freed does not stay to be used again
    command = [sys.executable, "-c", UNDER_LIMITS, name, codec]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = set(done.stdout.splitlines())
    assert outcomes <= {"scan rows", "scan memory", "fetch rows", "fetch memory"}
    assert outcomes >= {"scan rows", "fetch rows", "fetch memory"}


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("malloc of size 200003456 failed"),
        OSError("ZSTD decompression failed: Allocation error : not enough memory"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_each_spelling_of_a_lack_of_memory_is_known(error: Exception) -> None:
    with pytest.raises(MemoryError, match=re.escape(str(error))):
        check_memory(error)


@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid("the value 'out of memory' is no number"), OSError("Corrupt snappy compressed data.")]
)
def test_what_is_wrong_with_the_data_stays_an_error_of_the_data(error: Exception) -> None:
    check_memory(error)


def test_every_handler_of_pyarrows_errors_lets_memory_errors_pass() -> None:
    """ArrowMemoryError is an ArrowException."""
    missed = []
    for folder in ("sources", "btree", "shadow", "jobs", "indexer"):
        for path in sorted((ROOT / "gnomon" / folder).rglob("*.py")):
            for tried in ast.walk(ast.parse(path.read_text())):
                if isinstance(tried, ast.Try):
                    missed += [f"{path}:{line}" for line in _unguarded(tried)]
                elif isinstance(tried, ast.Call) and getattr(tried.func, "id", "") == "suppress":
                    missed += [f"{path}:{tried.lineno}"] * _names_arrow(tried)
    files = [place.rpartition(":")[0] for place in missed]
    assert files == [f"{ROOT}/gnomon/shadow/verify/manifests.py"]  # it parses the name of a type, and reads no file


def _unguarded(tried: ast.Try) -> list[int]:
    guarded, lines = False, []
    for handler in tried.handlers:
        guarded |= handler.type is not None and "MemoryError" in ast.unparse(handler.type)
        if guarded or handler.type is None or not _names_arrow(handler.type):
            continue
        if not any("check_memory(" in ast.unparse(line) for line in handler.body):
            lines.append(handler.lineno)
    return lines


def _names_arrow(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return "ArrowException" in text or "NOT_A_TYPE" in text
