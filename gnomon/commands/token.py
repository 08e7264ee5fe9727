"""gnomon token: a new bearer token for the service."""

import datetime as dt
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from gnomon.commands.output import say
from gnomon.service.token_lines import Token, new_token, parse_tokens
from gnomon.shadow import UsageError
from gnomon.shadow.storage import writing

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
MOST_DAYS = 36_500
ONLY_ITS_OWNER = stat.S_IRUSR | stat.S_IWUSR


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Name of the owner, who may have several tokens, to replace an old one.")],
    index: Annotated[
        list[str] | None, typer.Option("--index", help="Name of an index that it may read; repeatable; default all.")
    ] = None,
    days: Annotated[int | None, typer.Option(help="Days until the token expires; by default never.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The service's tokens file, to which the line is added instead of printed.")
    ] = None,
) -> None:
    """Make a token and print it once; the service keeps only its hash, which is the line for its tokens file."""
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise UsageError(f"--days {days}: expected 1 to {MOST_DAYS}")
    last_day = None if days is None else dt.datetime.now(dt.UTC).date() + dt.timedelta(days)
    secret, made = new_token(name, index or (), last_day)
    if file is not None:
        append(file, made)
    say(secret)
    if file is None:
        say(made.line)


def append(file: Path, made: Token) -> None:
    """Add the line of a token to a file. A new file is readable by its owner only. The file is replaced as a whole: a
    service that reads it sees the old lines, or all lines.

    UsageError where the file has other content than tokens; such a file is not changed. StorageError where the disk
    fails."""
    target = Path(os.path.realpath(file))  # a link stays a link
    with writing(file), _alone_in(target.parent):
        try:
            before, status = target.read_bytes(), target.stat()
        except FileNotFoundError:
            before, status = b"", None
        end = b"" if not before or before.endswith(b"\n") else b"\n"
        content = before + end + made.line.encode() + b"\n"
        parse_tokens(content.decode("utf-8", "replace").splitlines(), str(file))
        _replace(target, content, status)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder for a block: other programs that append there wait, so that no line is lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError("no such folder; expected one for the tokens file", str(folder)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, content: bytes, before: os.stat_result | None) -> None:
    """Replace the file in one step, with the permissions and the owner of the old file."""
    mode = ONLY_ITS_OWNER if before is None else stat.S_IMODE(before.st_mode)
    staged = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, ONLY_ITS_OWNER), "wb") as out:
            if before is not None:
                with suppress(PermissionError):  # only root can change the owner
                    os.fchown(out.fileno(), before.st_uid, before.st_gid)
            os.fchmod(out.fileno(), mode)
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(staged, target)
    finally:
        with suppress(FileNotFoundError):
            staged.unlink()
