"""No answer names a folder of the server, whatever is damaged."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.lake import TWICE, Client, add_day, make_crawl


def _halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _turned(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(byte ^ 0x55 for byte in content))


def _made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKS = [Path.unlink, _halved, _turned, _made_a_folder]
TARGETS = [
    "/rows/second",
    f"/rows/{TWICE}?_explain=true",
    "/rows/second?_snapshot=1",
    "/rows/no?_snapshot=9",
    "/readyz",
    "/metrics",
]


def _files(folder: Path) -> list[str]:
    """One file of each kind, by folder and ending."""
    kinds = {(path.parent, path.suffix): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return sorted(str(path.relative_to(folder)) for path in kinds.values())


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_whichever_file_is_broken_no_answer_says_where_it_lies(tmp_path: Path, broken: Callable[[Path], None]) -> None:
    lake = tmp_path / "of-the-server"
    settings = make_crawl(lake)
    add_day(lake, "2026-01-03", ["third"])
    shutil.copytree(lake, tmp_path / "whole")
    files, failed = _files(lake), 0
    assert len(files) >= 6
    for name in files:
        client = Client(settings)
        broken(lake / name)
        client.served.refresh()
        answers = [client.get(target) for target in TARGETS]
        answers += [client.ask("HEAD", "/rows/second"), client.post({"keys": ["second", "third", "no"]})]
        failed += sum(answer.status_code >= 400 for answer in answers)
        for answer in answers:
            text = answer.text + str(answer.headers)
            for secret in (str(tmp_path), tmp_path.name, "of-the-server"):
                assert secret not in text, (name, text)
        shutil.rmtree(lake)
        shutil.copytree(tmp_path / "whole", lake)  # with their times, so that the files are the same
    assert failed > len(files), "something was broken indeed"
