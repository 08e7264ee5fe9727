"""HDFS that Kerberos protects: a delegation token of Hadoop's own tool is enough for everything."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnomon.jobs.build import build
from gnomon.shadow import open_index
from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.storage.webhdfs_calls import FILE
from tests.stores.kerberos import SecureHdfs, secure_hdfs

pytestmark = [pytest.mark.nightly, pytest.mark.store]
ROOT = "hdfs://localhost/lake"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfs]:
    with secure_hdfs(tmp_path_factory.mktemp("kerberos")) as found:
        yield found


def test_without_a_token_the_error_says_how_to_get_one(cluster: SecureHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_WEBHDFS", cluster.address)
    monkeypatch.delenv(FILE, raising=False)
    with pytest.raises(StorageError, match=r"asks for a login by Kerberos.*run kinit and hdfs fetchdt"):
        list(storage_at(ROOT).list())


def test_with_a_token_an_index_is_built_and_asked(
    cluster: SecureHdfs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.fetch_token(tmp_path / "token")
    monkeypatch.setenv("GNOMON_WEBHDFS", cluster.address)
    monkeypatch.setenv(FILE, str(tmp_path / "token"))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}), sink)
    storage_at(f"{ROOT}/source").put_new("a.parquet", [sink.getvalue().to_pybytes()])
    assert build(None, f"{ROOT}/source", f"{ROOT}/index", ["k"]).rows == 3
    assert open_index(f"{ROOT}/index").fetch(2) == [{"k": 2, "v": "b"}]


def test_a_token_that_is_no_longer_valid_is_refused_in_one_line(
    cluster: SecureHdfs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.fetch_token(tmp_path / "token")
    data = bytearray((tmp_path / "token").read_bytes())
    data[data.upper().rindex(b"DELEGATION") - 20] ^= 1  # in the password, which lies before the kind
    (tmp_path / "token").write_bytes(data)
    monkeypatch.setenv("GNOMON_WEBHDFS", cluster.address)
    monkeypatch.setenv(FILE, str(tmp_path / "token"))
    with pytest.raises(StorageError, match=r"refuses the delegation token.*run kinit and hdfs fetchdt"):
        list(storage_at(ROOT).list())
