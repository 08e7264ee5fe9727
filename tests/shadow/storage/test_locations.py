"""A location leads to its store, or to an error with the expected form."""

import pytest

from gnomon.shadow.errors import StorageError, UsageError
from gnomon.shadow.storage import is_local, join, locations, split, storage_at


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/lake/crawl/", "s3://bucket/lake/crawl"),
        ("gs://bucket/dt=a%2Fb c/#?", "gs://bucket/dt=a%2Fb c/#?"),
        ("az://container/x", "az://container/x"),
        ("memory://name/x", "memory://name/x"),
        ("hdfs://host:8020/lake", "hdfs://host:8020/lake"),
        ("hdfs://host", "hdfs://host"),
    ],
)
def test_a_url_is_taken_as_it_is(location: str, root: str) -> None:
    assert storage_at(location).root == root


@pytest.mark.parametrize(
    "location",
    [
        "file://host/x",
        "ftp://host/x",
        "s3://",
        "s3:///x",
        "s3://b/x//y",
        "hdfs://h/a/../b",
        "gs://b/./x",
        "",
        "s3:/x",
        "s3a:/b/x",
        "hdfs:/x",
        "file://",
    ],
)
def test_what_names_no_place_is_refused(location: str) -> None:
    with pytest.raises((StorageError, UsageError), match="expected") as caught:
        storage_at(location)
    assert location in str(caught.value)


def test_a_store_whose_package_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(locations.STORES, "s3", ("no_such_module", "X", "obstore"))
    with pytest.raises(StorageError, match=r"s3://b/x: stores of s3:// need the package obstore.*pip install obstore"):
        storage_at("s3://b/x")


@pytest.mark.parametrize(
    ("root", "parts"),
    [
        ("/a/b", ("/a", "b")),
        ("/a", ("/", "a")),
        ("/", ("/", "")),
        ("s3://b", ("s3://b", "")),
        ("s3://b/x", ("s3://b", "x")),
        ("s3://b/x/y.parquet", ("s3://b/x", "y.parquet")),
    ],
)
def test_a_root_is_split_and_joined(root: str, parts: tuple[str, str]) -> None:
    assert split(root) == parts
    assert join(*parts) == root
    assert is_local(root) == root.startswith("/")
