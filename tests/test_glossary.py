"""docs/reference/glossary.md: few words, in order, each in use; and no page or help text says an old word."""

import re
from pathlib import Path

import pytest

from gnomon.__main__ import COMMANDS, main

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENTRIES = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", GLOSSARY.read_text(), re.MULTILINE)[1:])
OLD_WORDS = (
    "key filter",
    "dedup load",
    "entries that count",
    "entry that counts",
    "no longer count",
    "segment list",
    "segment's list",
    "folder of values",
    "key-value table",
)


def old_words(text: str) -> list[str]:
    words = " ".join(text.split()).lower()
    return [old for old in OLD_WORDS if re.search(rf"(?<!\w){re.escape(old)}(?!\w)", words)]


def test_the_glossary_has_few_words_in_alphabetical_order() -> None:
    assert 25 <= len(ENTRIES) <= 40
    assert list(ENTRIES) == sorted(ENTRIES, key=str.lower)


@pytest.mark.parametrize("word", ENTRIES)
def test_a_word_is_explained_in_one_or_two_sentences(word: str) -> None:
    text = re.sub(r"`[^`]*`|\([^()]*\)", "", ENTRIES[word])
    assert text.endswith(".")
    assert len(re.findall(r"[.?!](?= |$)", text)) <= 2


@pytest.mark.parametrize("word", ENTRIES)
def test_a_word_of_the_glossary_is_used_in_the_docs(word: str) -> None:
    used = re.compile(rf"\b{re.escape(word.removesuffix('y'))}(y|ies|s|es|ed)?\b", re.IGNORECASE)
    assert any(used.search(" ".join(page.read_text().split())) for page in PAGES if page != GLOSSARY)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name if page.parent != ROOT else "README")
def test_no_page_says_an_old_word(page: Path) -> None:
    assert old_words(page.read_text()) == []


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_no_help_says_an_old_word(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"] if command else ["--help"]) == 0
    assert old_words(capsys.readouterr().out) == []
