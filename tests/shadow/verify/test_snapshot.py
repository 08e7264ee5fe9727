"""A sample of pointers is followed before a build commits."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.btree.errors import DamagedIndexFile
from gnomon.shadow.errors import StalePointer
from gnomon.shadow.metadata.source_files import source_of
from gnomon.shadow.verify.snapshot import verify_sample
from tests.shadow.make_index import Build, write_source


@pytest.fixture
def build(tmp_path: Path) -> Build:
    write_source(tmp_path / "lake", {f"p={p}/a.parquet": pa.table({"k": range(50)}) for p in "ab"})
    return Build(tmp_path / "lake", tmp_path / "index", ["k"])


def verify(build: Build) -> int:
    root = source_of(build.spec)
    return verify_sample(build.storage, root.storage, build.spec, build.index_files, build.covered)


def test_a_sound_build_is_sampled_in_every_index_file_while_they_are_few(build: Build) -> None:
    assert len(build.index_files) == 8
    assert verify(build) >= 2 * 8


def test_nothing_written_is_nothing_to_compare(build: Build) -> None:
    build.index_files = []
    assert verify(build) == 0


def test_a_pointer_to_a_row_with_another_key_fails_the_build(build: Build, tmp_path: Path) -> None:
    table = pa.table({"k": [*range(1, 50), 0]})
    write_source(tmp_path / "lake", {"p=a/a.parquet": table})
    listed = {info.path: info for info in source_of(build.spec).list()}
    fresh = Build(tmp_path / "lake", tmp_path / "other", ["k"]).covered
    build.covered = [replace(one, mtime_ns=listed[one.path].mtime_ns) for one in fresh]
    with pytest.raises(StalePointer, match="does not hold the key it was indexed under") as caught:
        verify(build)
    assert caught.value.path == f"{tmp_path}/lake/p=a/a.parquet"


def test_an_entry_where_no_look_up_would_find_it_fails_the_build(build: Build, tmp_path: Path) -> None:
    file = build.index_files[0]
    for wrong in (replace(file, bucket=file.bucket + 1), replace(file, partition="p=b")):
        build.index_files = [wrong]
        with pytest.raises(DamagedIndexFile, match="which belongs elsewhere") as caught:
            verify(build)
        assert caught.value.path == f"{tmp_path}/index/{file.path}"


def test_a_filter_that_denies_a_key_of_its_file_fails_the_build(build: Build, tmp_path: Path) -> None:
    one, other = build.index_files[:2]
    build.index_files = [replace(one, filter=other.filter)]
    with pytest.raises(DamagedIndexFile, match=f"denies a key of {one.path}") as caught:
        verify(build)
    assert other.filter is not None
    assert caught.value.path == f"{tmp_path}/index/{other.filter.path}"


def test_an_index_file_without_a_filter_is_sound(build: Build) -> None:
    build.index_files = [replace(file, filter=None) for file in build.index_files]
    assert verify(build) >= 2 * 8


def test_an_entry_of_a_file_that_is_not_covered_fails_the_build(build: Build) -> None:
    build.covered = build.covered[1:]
    with pytest.raises(DamagedIndexFile, match=r"file p=a/a\.parquet, which belongs elsewhere"):
        verify(build)
