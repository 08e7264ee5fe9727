"""Sets of keys of two indexes, as Python makes them of the rows of the sources."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gnomon
from gnomon.__main__ import main
from gnomon.jobs.build import build
from gnomon.jobs.dedup import delete
from gnomon.shadow.key_sets import ROWS, SIDE, KeySet
from tests.profiles import examples
from tests.shadow.key_values import VALUES
from tests.shadow.lookup.test_key_statistics import keys_of
from tests.shadow.lookup.test_ordered import Lake, make
from tests.shadow.make_index import index_source, write_source


@pytest.fixture(params=["small pieces", "large pieces"], autouse=True)
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small pieces, keys of both indexes are held back at many places."""
    if request.param == "small pieces":
        monkeypatch.setattr("gnomon.shadow.lookup.ordered.MOST_AT_ONCE", 3)
        monkeypatch.setattr("gnomon.shadow.lookup.ordered.KEYS_AT_ONCE", 5)


def found_in(keys: KeySet) -> Counter[tuple[str, str, int]]:
    """Keys as text, in which NaN equals NaN, with the side and the number of rows."""
    found: Counter[tuple[str, str, int]] = Counter()
    for table in keys:
        numbers = table.column(SIDE).to_pylist(), table.column(ROWS).to_pylist()
        found.update(zip(map(repr, keys.shown(table)), *numbers, strict=True))
    return found


def counted(lake: Lake) -> Counter[tuple[Any, ...]]:
    return Counter(keys_of(lake.rows, lake.keys))


def are_as_in_python(first: Lake, second: Lake) -> None:
    one, other = counted(first), counted(second)
    alone = [("first", key, rows) for key, rows in one.items() if key not in other]
    alone += [("second", key, rows) for key, rows in other.items() if key not in one]
    diff = gnomon.diff(first.index, second.index)
    assert found_in(diff) == Counter((repr(key), side, rows) for side, key, rows in alone)
    sides = Counter(side for side, _, _ in alone)
    assert diff.counts == {"first": sides["first"], "second": sides["second"], "both": len(one.keys() & other.keys())}
    orphans = gnomon.orphans(first.index, second.index)
    sound = {key for key in one if None not in key}
    lost = sound - other.keys()
    assert found_in(orphans) == Counter((repr(key), "first", one[key]) for key in lost)
    assert orphans.counts == {"first": len(lost), "both": len(sound & other.keys()), "nulls": len(one) - len(sound)}
    unique = gnomon.unique(first.index)
    again = [key for key in sound if one[key] > 1]
    assert found_in(unique) == Counter((repr(key), "first", one[key]) for key in again)
    nulls = sum(rows for key, rows in one.items() if None in key)
    assert unique.counts == {"first": len(again), "keys": len(sound), "nulls": nulls}


@pytest.mark.parametrize("orders", [("hash", "hash"), ("hash", "range"), ("range", "range")])
@pytest.mark.parametrize("kind", VALUES)
def test_sets_of_keys_are_those_of_python(tmp_path: Path, kind: str, orders: tuple[str, str]) -> None:
    chance = random.Random(kind)
    are_as_in_python(*(make(tmp_path / str(i), [kind], chance, order) for i, order in enumerate(orders)))


@pytest.mark.parametrize("seed", range(examples(6)))
def test_sets_of_keys_of_several_columns_are_those_of_python(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(list(VALUES)) for _ in range(2)]
    are_as_in_python(*(make(tmp_path / name, kinds, chance, chance.choice(["hash", "range"])) for name in "ab"))


def made(root: Path, keys: pa.Array, name: str = "k", buckets: int = 2) -> str:
    write_source(root / "lake", {"p=0/a.parquet": pa.table({name: keys})})
    index_source(root / "lake", root / "index", [name], buckets)
    return str(root / "index")


def test_whole_numbers_of_all_sizes_are_compared_and_other_types_are_refused(tmp_path: Path) -> None:
    small = made(tmp_path / "a", pa.array([1, 2, -3, None], pa.int32()), "id", 3)
    large = made(tmp_path / "b", pa.array([1, -3, 1 << 40], pa.int64()))
    text = made(tmp_path / "c", pa.array(["1"]))
    assert found_in(gnomon.diff(small, large)) == Counter(
        [("(None,)", "first", 1), ("(2,)", "first", 1), ("(1099511627776,)", "second", 1)]
    )
    with pytest.raises(gnomon.UsageError, match="expected the key types bigint"):
        gnomon.diff(small, text)


def test_deleted_rows_are_in_no_set(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    rows = pa.table({"id": [number % 40 for number in range(60)]})
    write_deltalake(str(tmp_path / "t"), rows, configuration={"delta.enableDeletionVectors": "true"})
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "new"), ["id"], buckets=2)
    build(None, f"delta:{tmp_path / 't'}", str(tmp_path / "old"), ["id"], buckets=3)
    delete(None, str(tmp_path / "new"), [0, 39, 7])
    found = gnomon.diff(str(tmp_path / "old"), str(tmp_path / "new"))
    assert found_in(found) == Counter({("(0,)", "first", 2): 1, ("(7,)", "first", 2): 1, ("(39,)", "first", 1): 1})
    unique = gnomon.unique(str(tmp_path / "new"))
    assert sum(found_in(unique).values()) == unique.counts["first"] == 18


def test_a_damaged_index_file_is_an_error(tmp_path: Path) -> None:
    good, bad = (made(tmp_path / name, pa.array(range(1000), pa.int64())) for name in "ab")
    file = next(path for path in Path(bad).rglob("*.avro") if path.stat().st_size > 1000)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    for asked in (gnomon.diff(good, bad), gnomon.orphans(bad, good), gnomon.unique(bad)):
        with pytest.raises(gnomon.GnomonError):
            list(asked)


def test_commands_end_with_1_where_they_find_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = made(tmp_path / "a", pa.array([1, 2, 3, 3], pa.int64()))
    second = made(tmp_path / "b", pa.array([1, 2, 3, 4], pa.int64()))
    assert main(["diff", first, first]) == main(["unique", second]) == main(["orphans", first, second]) == 0
    assert main(["unique", first]) == main(["orphans", second, first]) == 1
    capsys.readouterr()
    assert main(["diff", second, first, "--limit", "1", "--json"]) == 1
    assert capsys.readouterr().out == (
        '{"snapshots": [1, 1], "counts": {"first": 1, "second": 0, "both": 3}, '
        '"shown": [{"key": [4], "side": "first", "rows": 1}]}\n'
    )
    assert main(["diff", first, str(tmp_path / "none")]) == 3
