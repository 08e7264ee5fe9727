"""A source whose files lie on several stores."""

import pickle
from pathlib import Path

import pytest

from gnomon.shadow.errors import FileChanged
from gnomon.shadow.storage import SourceStorage, below, is_absolute, join, source_storage, storage_at
from gnomon.shadow.tables import Table


def test_paths_below_the_root_and_whole_locations_open_the_files_they_name(tmp_path: Path) -> None:
    (tmp_path / "t/dt=1").mkdir(parents=True)
    (tmp_path / "t/dt=1/a").write_bytes(b"below")
    (tmp_path / "far away").mkdir()
    (tmp_path / "far away/b").write_bytes(b"elsewhere")
    storage_at(f"memory://{tmp_path.name}/deep").put_new("c", [b"on another store"])
    source: SourceStorage = pickle.loads(pickle.dumps(source_storage(str(tmp_path / "t"))))
    contents = {
        "dt=1/a": b"below",
        f"{tmp_path}/far away/b": b"elsewhere",
        f"memory://{tmp_path.name}/deep/c": b"on another store",
    }
    for path, data in contents.items():
        with source.open(path) as file:
            assert (file.read_range(0, file.size), file.name) == (data, join(source.root, path))
        for wrong in (f"{path}x", path.rpartition("/")[0] + "/none/here"):
            with pytest.raises(FileNotFoundError):
                source.open(wrong)
    folders = {"dt=1": "dt=1", "dt=2": f"{tmp_path}/far away", "dt=3": f"memory://{tmp_path.name}/deep"}
    listed, _ = Table("db.t", folders, {"dt": "int"}, "").list(source)
    assert {info.path for info in listed} == set(contents)
    for info in listed:
        with source.open(info.path, known=info) as file:
            assert file.read_range(0, 1) == contents[info.path][:1]
        with pytest.raises(FileChanged), source.open(info.path, known=info._replace(size=99)) as file:
            file.read_range(0, 1)


def test_a_location_is_named_by_its_path_where_it_lies_below_the_root() -> None:
    assert below("/lake/t", "/lake/t/dt=1") == "dt=1"
    assert below("/lake/t", "/lake/t") == ""
    assert below("/lake/t", "/lake/t2/dt=1") == "/lake/t2/dt=1"
    assert below("/", "/lake") == "lake"
    assert below("s3://b/t", "s3://b/t/x/y") == "x/y"
    assert below("s3://b/t", "s3://other/t/x") == "s3://other/t/x"
    assert [is_absolute(path) for path in ("/a", "s3://b/a", "a/b", "a:b/c")] == [True, True, False, False]
    assert join("/lake", "s3://b/a") == "s3://b/a"
