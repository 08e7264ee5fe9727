"""`Samples` is a sequence with the row of each key, also in the worker processes of a data loader."""

import multiprocessing
import pickle
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnomon import Samples, build
from gnomon.shadow import KeyTypeError, StalePointer, UnknownColumn, UsageError, open_index
from gnomon.shadow.storage.local import LocalFile
from tests.shadow.make_index import index_source, write_source

KEYS = [f"k{number:03}" for number in range(100)]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """An index of 100 keys, in two files that share no order with them."""
    order = np.random.default_rng(1).permutation(100).tolist()
    for i in range(2):
        numbers = order[i * 50 : (i + 1) * 50]
        rows = pa.table({"k": [KEYS[one] for one in numbers], "n": numbers, "x": [one / 2 for one in numbers]})
        write_source(tmp_path / "source", {f"{i}.parquet": rows})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 3)
    return str(tmp_path / "index")


def row(number: int) -> dict[str, Any]:
    return {"k": KEYS[number], "n": number, "x": number / 2}


def test_all_keys_are_there_in_their_order(place: str) -> None:
    samples = Samples(place)
    assert len(samples) == 100
    assert [samples[i] for i in range(100)] == [row(i) for i in range(100)] == list(samples)
    assert samples.__getitems__([7, 0, 99, 7]) == [row(7), row(0), row(99), row(7)]
    assert samples.__getitems__([]) == []
    assert repr(samples).endswith("100 rows by k>: 100 keys>")


def test_given_keys_keep_their_order_in_any_form(place: str) -> None:
    asked = ["k042", "k007", "k042", "k099"]
    table = pa.table({"k": asked, "other": [1] * 4})
    for keys in (asked, tuple(asked), iter(asked), np.array(asked), pa.array(asked), table):
        samples = Samples(open_index(place), keys, columns=["n"])
        assert [samples[i] for i in range(len(samples))] == [{"n": n} for n in (42, 7, 42, 99)]


def test_a_number_is_one_of_a_sequence(place: str) -> None:
    samples = Samples(place)
    assert (samples[-1], samples[-100], samples[np.int64(3)]) == (row(99), row(0), row(3))  # type: ignore[index]
    for number in (100, -101):
        with pytest.raises(IndexError, match=f"number {number}: expected one from -100 to 99"):
            samples[number]
        with pytest.raises(IndexError):
            samples.__getitems__([0, number])
    with pytest.raises(TypeError):
        samples["k042"]  # type: ignore[index]
    empty = Samples(place, [])
    assert (len(empty), empty.__getitems__([])) == (0, [])
    with pytest.raises(IndexError):
        empty[0]


def test_a_key_without_one_row_is_an_error(tmp_path: Path) -> None:
    for day in ("a", "b"):
        write_source(tmp_path / "source", {f"p={day}/f.parquet": pa.table({"k": [1, 2], "n": [5, 6]})})
    write_source(tmp_path / "source", {"p=c/f.parquet": pa.table({"k": [3], "n": [7]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    index = open_index(str(tmp_path / "index"))
    samples = Samples(index, [3, 1, 9], ["n"])
    assert samples[0] == {"n": 7}
    with pytest.raises(UsageError, match=r"index: the key 1 has 2 rows; expected one row for each key"):
        samples[1]
    with pytest.raises(UsageError, match="the key 9 has 0 rows"):
        samples.__getitems__([0, 2])
    with pytest.raises(UsageError, match=r"the key \((1|2),\) has 2 rows"):
        Samples(index)
    of_one = Samples(index, where={"p": "b"})
    assert of_one.__getitems__([0, 1]) == [{"k": 1, "n": 5, "p": "b"}, {"k": 2, "n": 6, "p": "b"}]


def test_wrong_arguments_are_refused_before_a_worker_starts(place: str) -> None:
    with pytest.raises(UnknownColumn):
        Samples(place, columns=["nowhere"])
    with pytest.raises(KeyTypeError):
        Samples(place, [5])
    with pytest.raises(UsageError):
        Samples(place, "k001")


TYPES = {
    "uuid": pa.array([uuid.UUID(int=i).bytes for i in range(6)], pa.binary(16)).cast(pa.uuid()),
    "time": pa.array(range(6), pa.time64("us")),
    "nanoseconds": pa.array(range(6), pa.timestamp("ns")),
    "unsigned": pa.array([2**64 - 1 - i for i in range(6)], pa.uint64()),
    "decimal": pa.array([Decimal(i) / 100 for i in range(6)], pa.decimal128(10, 2)),
    "float": pa.array([-0.0, float("nan"), 1.5, float("inf"), -2.0, 3.0]),
    "half": pa.array([np.float16(i) for i in range(6)], pa.float16()),
    "binary": pa.array([bytes([i]) for i in range(6)]),
    "null": pa.array([1, None, 2, 3, 4, 5]),
    "dictionary": pa.array(list("abcdef")).dictionary_encode(),
}


@pytest.mark.parametrize("name", TYPES)
def test_all_keys_of_each_type_find_their_rows(name: str, tmp_path: Path) -> None:
    for i in range(2):
        rows = pa.table({"k": TYPES[name].slice(i * 3, 3), "n": range(i * 3, i * 3 + 3)})
        write_source(tmp_path / "source", {f"{i}.parquet": rows})
    build(None, str(tmp_path / "source"), str(tmp_path / "index"), ["k"])
    samples = Samples(tmp_path / "index")
    rows = list(samples.__getitems__(range(6)))
    assert sorted(one["n"] for one in rows) == list(range(6))
    assert repr(rows) == repr(list(open_index(tmp_path / "index").range()))


def test_keys_with_a_partition_column_are_whole(tmp_path: Path) -> None:
    for day in ("a", "b"):
        write_source(tmp_path / "source", {f"p={day}/f.parquet": pa.table({"k": [2, 1], "n": [5, 6]})})
    index_source(tmp_path / "source", tmp_path / "index", ["p", "k"])
    samples = Samples(tmp_path / "index")
    assert sorted((one["p"], one["k"], one["n"]) for one in samples) == [
        *(("a", 1, 6), ("a", 2, 5)),
        *(("b", 1, 6), ("b", 2, 5)),
    ]


def test_an_index_without_rows_has_no_samples(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": pa.array([], pa.string())})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"])
    samples = Samples(tmp_path / "index")
    assert (len(samples), list(samples)) == (0, [])


def test_a_batch_reads_shared_pages_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, found = range(0, 100, 2), []
    real = LocalFile.read_ranges

    def recorded(self: LocalFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found.extend(ranges)
        return real(self, ranges)

    keys = [KEYS[number] for number in numbers]
    samples = Samples(open_index(place, cache_bytes=0, keep_pages=False), keys)
    monkeypatch.setattr(LocalFile, "read_ranges", recorded)
    one_by_one = [samples[i] for i in range(50)]
    reads = len(found)
    found.clear()
    assert samples.__getitems__(list(range(50))) == one_by_one == [row(number) for number in numbers]
    assert len(found) < reads / 5


def test_rows_are_of_the_snapshot_that_the_samples_were_made_of(place: str, tmp_path: Path) -> None:
    index = open_index(place)
    samples = Samples(index)
    write_source(tmp_path / "source", {"2.parquet": pa.table({"k": ["a"], "n": [7], "x": [0.5]})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], 3)
    assert index.refresh()
    for same in (samples, pickle.loads(pickle.dumps(samples))):
        assert (len(same), same[0]) == (100, row(0))
    assert Samples(index)[0]["k"] == "a"
    (tmp_path / "source/0.parquet").unlink()
    with pytest.raises(StalePointer):
        samples.__getitems__(range(100))


def batch_of(samples: Samples, numbers: list[int]) -> list[dict[str, Any]]:
    return samples.__getitems__(numbers)


@pytest.mark.process
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_processes_read_the_same_rows(method: str, place: str) -> None:
    for keys in (None, KEYS[::-1]):
        samples = Samples(place, keys)
        expected = samples.__getitems__(range(100))
        batches = [list(range(first, first + 25)) for first in range(0, 100, 25)]
        with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
            found = list(pool.map(batch_of, [samples] * 4, batches))
        assert [one for batch in found for one in batch] == expected
