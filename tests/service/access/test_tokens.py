"""service/access/tokens.py: lines to tokens, a file that is followed, and secrets that are never shown."""

import datetime as dt
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.service.access import tokens as module
from gnomon.service.access.tokens import MOST_FILE_BYTES, Tokens
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import MOST_TOKENS, PREFIX, Token, digest_of, new_token, parse_tokens
from gnomon.shadow import UsageError
from gnomon.shadow.storage.concurrency import threads

SECRET = "gnomon_this-is-the-secret-itself"


def line(name: str, secret: str = SECRET, rest: str = "") -> str:
    return f"{name} sha256:{hashlib.sha256(secret.encode()).hexdigest()} {rest}".strip()


def of_file(path: Path, *lines: str) -> Settings:
    path.write_text("".join(f"{one}\n" for one in lines))
    path.chmod(0o600)
    return Settings(indexes=["x"], tokens_file=str(path))


def parsed(*lines: str) -> list[Token]:
    return parse_tokens(lines, None)


def test_a_line_names_its_owner_its_indexes_and_its_last_day() -> None:
    [one] = parsed("# who may ask", "", line("ann", rest="indexes=a,b expires=2026-12-31  # until she leaves"))
    assert one == Token("ann", digest_of(SECRET), frozenset({"a", "b"}), dt.date(2026, 12, 31))
    assert (one.may_ask("a"), one.may_ask("c")) == (True, False)
    assert not one.expired(dt.date(2026, 12, 31))
    assert one.expired(dt.date(2027, 1, 1))
    assert parsed(one.line) == [one]


def test_a_new_token_has_256_random_bits_and_its_line_holds_its_hash_alone() -> None:
    secrets = {new_token("ann")[0] for _ in range(100)}
    assert len(secrets) == 100
    assert {len(secret.removeprefix(PREFIX)) for secret in secrets} == {43}  # of base64, 6 bits each
    secret, token = new_token("ann", ["pages"], dt.date(2026, 12, 31))
    assert secret not in token.line
    assert token.line == f"ann sha256:{hashlib.sha256(secret.encode()).hexdigest()} indexes=pages expires=2026-12-31"
    assert parsed(token.line) == [token]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\n", "é", "a" * 65, "#a", "a,b"])
def test_a_name_that_no_line_can_hold_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="token name"):
        new_token(name)


def test_an_index_that_no_line_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="expected the name of an index"):
        new_token("ann", ["a,b"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (SECRET, "expected NAME sha256:HEX"),
        (f"ann {SECRET}", "the second word: expected sha256:"),
        (f"ann sha256:{SECRET}", "the second word: expected sha256:"),
        (line("ann").upper().replace("ANN", "ann"), "the second word"),
        (line("ann", rest=SECRET), "behind the hash: expected indexes="),
        (line("ann", rest="index=a"), "behind the hash"),
        (line("ann", rest="indexes=a indexes=b"), "once each"),
        (line("ann", rest="indexes="), "indexes=: expected names"),
        (line("ann", rest="indexes=a,,b"), "indexes=: expected names"),
        (line("ann", rest="expires=soon"), "expires=: expected a day"),
        (line("ann", rest="expires=2026-02-30"), "expires=: expected a day"),
        (line("ann", rest="expires=20261231"), "expires=: expected a day"),
        (line("bob"), "its hash stands in line 1, too"),
    ],
)
def test_a_wrong_line_is_told_by_its_number_and_never_shown(wrong: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        parsed(line("first"), "", wrong)
    assert str(raised.value).startswith("line 3: ")
    assert says in str(raised.value)
    assert SECRET not in str(raised.value)
    assert digest_of(SECRET).hex() not in str(raised.value)


def test_there_are_no_more_tokens_than_a_request_can_be_compared_with() -> None:
    lines = [line(f"t{number}", str(number)) for number in range(MOST_TOKENS + 1)]
    assert len(parsed(*lines[:-1])) == MOST_TOKENS
    with pytest.raises(UsageError, match=f"line {MOST_TOKENS + 1}: expected at most {MOST_TOKENS}"):
        parsed(*lines)


def test_without_settings_no_token_is_needed() -> None:
    assert not Tokens(Settings(indexes=["x"])).needed


def test_tokens_come_from_the_settings_and_the_file(tmp_path: Path) -> None:
    settings = of_file(tmp_path / "tokens", line("ann"))
    both = Tokens(replace(settings, tokens=(line("bob", "other"),)))
    for secret, name in ((SECRET, "ann"), ("other", "bob")):
        found = both.find(secret)
        assert found is not None
        assert found.name == name
    assert both.find("neither") is None
    assert both.find("\udcff") is None


def test_one_hash_in_settings_and_file_is_refused(tmp_path: Path) -> None:
    settings = replace(of_file(tmp_path / "tokens", line("ann")), tokens=(line("bob"),))
    with pytest.raises(UsageError, match=r"tokens: line 1: its hash stands among the other tokens, too"):
        Tokens(settings)


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    tokens = Tokens(of_file(tmp_path / "tokens", "# nobody yet"))
    assert tokens.needed
    assert tokens.find("") is None


def test_at_start_a_damaged_file_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    settings = of_file(tmp_path / "tokens", line("ann"), f"bob {SECRET}")
    with pytest.raises(
        UsageError, match=rf"^setting tokens_file: {tmp_path}/tokens: line 2: the second word"
    ) as raised:
        Tokens(settings)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "make", [lambda path: None, Path.mkdir, os.mkfifo, lambda path: path.write_bytes(b"#" * (MOST_FILE_BYTES + 1))]
)
def test_at_start_what_is_no_small_file_is_an_error(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "tokens")
    with pytest.raises(UsageError, match=rf"^setting tokens_file: {tmp_path}/tokens: "):
        Tokens(Settings(indexes=["x"], tokens_file=str(tmp_path / "tokens")))


def test_a_file_that_changes_is_taken_at_the_next_look_however_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    tokens = Tokens(of_file(path, line("ann")))
    status = path.stat()
    path.write_text(line("bob") + "\n")  # of the same length, and with the old times
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    tokens.look()
    found = tokens.find(SECRET)
    assert found is not None
    assert found.name == "bob"
    path.write_text("# all are refused\n")
    tokens.look()
    assert tokens.find(SECRET) is None


def test_a_file_damaged_while_running_leaves_the_tokens_as_they_were_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    tokens = Tokens(of_file(path, line("ann")))
    path.write_text(f"ann {SECRET}\n")
    with caplog.at_level(logging.ERROR, "gnomon.service"):
        tokens.look()
        tokens.look()
    assert tokens.find(SECRET) is not None
    assert tokens.trouble is not None
    assert tokens.trouble.startswith("the tokens file: line 1: the second word")
    [record] = caplog.records  # once, not at every look
    assert str(path) in record.getMessage()
    assert SECRET not in record.getMessage()
    path.write_text(line("ann") + "\n")
    tokens.look()
    assert tokens.trouble is None
    path.unlink()
    tokens.look()
    assert tokens.find(SECRET) is not None
    assert tokens.trouble is not None
    assert "cannot be read" in tokens.trouble
    assert str(tmp_path) not in tokens.trouble


def test_trouble_with_a_file_given_by_a_relative_path_says_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = Tokens(replace(of_file(tmp_path / "tok", line("ann")), tokens_file="tok"))
    of_file(tmp_path / "tok", "ann")
    tokens.look()
    assert tokens.trouble is not None
    assert tokens.trouble.startswith("the tokens file: line 1: expected NAME")
    assert tokens.trouble.endswith("gnomon token NAME prints such a line")


def test_a_process_that_begins_beside_a_damaged_file_lets_nobody_in_until_it_is_mended(tmp_path: Path) -> None:
    settings = of_file(tmp_path / "tokens", "ann")
    tokens = Tokens(settings, at_start=False)
    assert (tokens.needed, tokens.unread) == (True, True)
    assert tokens.find(SECRET) is None
    of_file(tmp_path / "tokens", line("ann"))
    tokens.look()
    assert (tokens.unread, tokens.trouble) == (False, None)
    assert tokens.find(SECRET) is not None


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A tokens file whose opening hangs until the test ends, as on a mount whose server is gone."""
    os.mkfifo(tmp_path / "tokens")
    monkeypatch.setattr(module, "_without_waiting", os.open)  # opening a pipe waits for its writer
    monkeypatch.setattr(module, "READ_SECONDS", 0.2)
    yield Settings(indexes=["x"], tokens_file=str(tmp_path / "tokens"))
    writer = os.open(tmp_path / "tokens", os.O_RDWR)  # does not wait for a reader
    threads(module.READERS, 1).submit(lambda: None).result(60)
    os.close(writer)


def test_a_file_that_hangs_is_an_error_at_the_start(hung: Settings) -> None:
    with pytest.raises(
        UsageError, match=r"^setting tokens_file: .*/tokens: the tokens cannot be read \(not within 0.2 s"
    ):
        Tokens(hung)


def test_a_process_that_begins_beside_a_file_that_hangs_begins_and_lets_nobody_in(hung: Settings) -> None:
    tokens = Tokens(hung, at_start=False)
    assert (tokens.unread, tokens.find(SECRET)) == (True, None)
    tokens.look()  # returns, though the first read hangs
    assert tokens.trouble is not None
    assert tokens.trouble.startswith("the tokens file: the tokens cannot be read (not within 0.2 s)")


def test_a_file_that_all_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = of_file(tmp_path / "tokens", line("ann"))
    Tokens(settings)
    assert not caplog.records
    (tmp_path / "tokens").chmod(0o644)
    Tokens(settings)
    assert "chmod 600" in caplog.text


def test_the_file_is_followed_in_a_thread_that_ends_when_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    tokens = Tokens(of_file(tmp_path / "tokens", line("ann")))
    looked = threading.Event()
    look = tokens.look

    def seen() -> None:
        look()
        if tokens.find("other") is not None:
            looked.set()

    monkeypatch.setattr(tokens, "look", seen)
    tokens.watch()
    (tmp_path / "new").write_text(line("bob", "other") + "\n")
    (tmp_path / "new").rename(tmp_path / "tokens")
    assert looked.wait(60)
    assert tokens.find(SECRET) is None
    tokens.close()
    first = tokens._watching
    assert first is not None
    first.join(60)
    assert not first.is_alive()
    looked.clear()
    tokens.watch()  # an app may be started again
    assert looked.wait(60)
    tokens.close()
