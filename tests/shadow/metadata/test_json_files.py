"""A metadata file is read as it was written, or is an error."""

from pathlib import Path

import pytest

from gnomon.shadow.errors import DamagedMetadata
from gnomon.shadow.metadata import json_files
from gnomon.shadow.storage import Storage, storage_at

CONTENT = {"name": "Straße 日本", "number": 7, "list": [1, None, True], "nested": {"a": "x\ny"}}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at(str(tmp_path))


def outcome(storage: Storage) -> object:
    """The content, or the error."""
    try:
        return json_files.read(storage, "f.json")
    except DamagedMetadata as error:
        return error


def test_content_comes_back(storage: Storage) -> None:
    storage.put_new("f.json", [json_files.encode(CONTENT)])
    assert json_files.read(storage, "f.json") == CONTENT


def test_white_space_does_not_count(storage: Storage) -> None:
    storage.put_new("f.json", [json_files.encode(CONTENT).replace(b"\n", b"\r\n")])
    assert json_files.read(storage, "f.json") == CONTENT


def test_every_flipped_byte_is_noticed_or_harmless(storage: Storage, tmp_path: Path) -> None:
    data = json_files.encode(CONTENT)
    harmless = 0
    for at in range(len(data)):
        for flip in (1, 0x20, 0x80, 0xFF):
            (tmp_path / "f.json").write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            if outcome(storage) == CONTENT:
                harmless += 1
            else:
                assert str(outcome(storage)).startswith(f"{tmp_path}/f.json at byte ")
    assert harmless < 10  # white space replaced by other white space


def test_every_cut_is_noticed(storage: Storage, tmp_path: Path) -> None:
    data = json_files.encode(CONTENT)
    for length in range(len(data) - 1):  # the last byte is a line end
        (tmp_path / "f.json").write_bytes(data[:length])
        with pytest.raises(DamagedMetadata, match=r"f\.json at byte"):
            json_files.read(storage, "f.json")


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"[1]", 0),
        (b"{}", 0),
        (b'{"a": 1, "crc32": 5}', 0),
        (b'{"a": \xff}', 6),
        ('{"é": x}'.encode(), 7),
        (b'{"a": 1', 7),
        (b"9" * 5000, 0),
    ],
)
def test_the_offset_is_that_of_the_byte_where_it_stopped_making_sense(
    storage: Storage, tmp_path: Path, data: bytes, offset: int
) -> None:
    (tmp_path / "f.json").write_bytes(data)
    with pytest.raises(DamagedMetadata, match=f"{tmp_path}/f.json at byte {offset}: .*gnomon build INDEX --full"):
        json_files.read(storage, "f.json")


def test_a_missing_file_is_told_from_a_folder_in_its_place(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        json_files.read(storage, "f.json")
    (tmp_path / "f.json").mkdir()
    with pytest.raises(DamagedMetadata, match=r"f\.json: a folder, expected a file"):
        json_files.read(storage, "f.json")
