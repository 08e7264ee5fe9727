"""Delegation tokens from the files that Hadoop writes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gnomon.shadow.errors import StorageError
from gnomon.shadow.storage.webhdfs_calls import FILE, TOKEN, delegation_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = b"HDFS_DELEGATION_TOKEN"
TEXT = "AQEBAhVIREZTX0RFTEVHQVRJT05fVE9LRU4EMTo4MA"


def part(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def token_file(*kinds: bytes, version: int = 0) -> bytes:
    """A file with a token of each kind: identifier 1, password 2, service `1:80`."""
    tokens = [part(b"alias") + part(b"\1") + part(b"\2") + part(kind) + part(b"1:80") for kind in kinds]
    return b"HDTS" + bytes([version, len(kinds)]) + b"".join(tokens) + b"\0"


def named(monkeypatch: pytest.MonkeyPatch, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    monkeypatch.setenv(FILE, str(path))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)
    monkeypatch.delenv(TOKEN, raising=False)


def test_without_settings_there_is_no_token() -> None:
    assert delegation_token() is None


def test_the_token_of_a_file_is_the_one_of_hdfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named(monkeypatch, tmp_path / "tokens", token_file(b"YARN_AM_RM_TOKEN", KIND))
    assert delegation_token() == TEXT
    monkeypatch.setenv(TOKEN, "as WebHDFS gives it")
    assert delegation_token() == "as WebHDFS gives it"


def test_a_file_that_was_written_again_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named(monkeypatch, tmp_path / "tokens", token_file(KIND))
    before = delegation_token()
    named(monkeypatch, tmp_path / "tokens", token_file(b"WEBHDFS delegation"))
    assert delegation_token() not in (None, before)


WRONG = {
    "no file": (None, "cannot be read: No such file"),
    "other bytes": (b"PK\3\4", "expected b'HDTS\\x00', found b'PK\\x03\\x04'"),
    "another version": (token_file(KIND, version=1), "found b'HDTS\\x01'"),
    "no token of HDFS": (token_file(b"YARN_AM_RM_TOKEN"), "has 0 tokens of HDFS"),
    "two tokens": (token_file(KIND, b"WEBHDFS delegation"), "has 2 tokens of HDFS"),
    "cut": (token_file(KIND)[:-9], "ends early"),
    "a wrong length": (token_file(KIND)[:6] + b"\x87" + token_file(KIND)[7:], "a length of -"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str) -> None:
    data, what = WRONG[case]
    if data is None:
        monkeypatch.setenv(FILE, str(tmp_path / "tokens"))
    else:
        named(monkeypatch, tmp_path / "tokens", data)
    with pytest.raises(StorageError) as caught:
        delegation_token()
    assert what in str(caught.value)
    assert str(tmp_path / "tokens") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize("length", [3, 127, 128, 300])
def test_files_that_hadoop_wrote_are_read(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path, length: int
) -> None:
    java: Any = spark._jvm
    hadoop = java.org.apache.hadoop
    identifier, password = bytearray(range(256))[:length] * (1 + length // 256), bytearray(b"\xff" * 20)
    token = hadoop.security.token.Token(identifier, password, hadoop.io.Text(KIND.decode()), hadoop.io.Text("1:80"))
    credentials = hadoop.security.Credentials()
    credentials.addToken(hadoop.io.Text("of hdfs"), token)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    credentials.writeTokenStorageFile(hadoop.fs.Path(f"file:{tmp_path}/tokens"), configuration)
    monkeypatch.setenv(FILE, str(tmp_path / "tokens"))
    assert delegation_token() == token.encodeToUrlString()
