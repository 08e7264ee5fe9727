"""Inspect one local index file: python -m gnomon.btree dump|get|check|stat FILE.

Exit codes: 0 done; 1 a key was not found (found entries are printed); 2 wrong usage; 3 a file is missing or damaged, or
output cannot be written.
"""

import argparse
import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from gnomon.btree.errors import BTreeError, KeyTypeError
from gnomon.btree.format import ENTRIES_KEY, KEY_VALUE_KEY, SCHEMA_KEY
from gnomon.btree.key_types import Json, key_type
from gnomon.btree.keys import Key
from gnomon.btree.reader import BTreeReader
from gnomon.btree.schema import Column

DONE, NOT_FOUND, USAGE, FAILED = 0, 1, 2, 3
SHOWN_TEXT = 80  # characters of a requested key in a message


class LocalFile:
    """A local file, open for reads of ranges."""

    is_remote = False

    def __init__(self, path: str) -> None:
        self.name = path
        self._file = open(path, "rb")  # noqa: SIM115 (open until `close`)
        self.size = os.fstat(self._file.fileno()).st_size

    def read_range(self, offset: int, length: int) -> bytes:
        try:
            self._file.seek(offset)
            return self._file.read(length)
        except OSError as error:
            raise BTreeError(str(error.strerror), self.name) from None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_range(*span) for span in ranges]

    def close(self) -> None:
        self._file.close()


class WrongUsage(BTreeError):
    """The command line is invalid for this file."""


def to_json_object(row: Key, columns: tuple[Column, ...]) -> dict[str, Json]:
    """Stored values by the names of their columns, in the JSON form that keys are also accepted in."""
    return {column.name: key_type(column.type).to_json(value) for column, value in zip(columns, row, strict=True)}


def _visible(text: object) -> str:
    """Untrusted text as one line for a terminal, with control characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def _print_entry(tree: BTreeReader, key: Key, value: Key) -> None:
    entry = {"key": to_json_object(key, tree.schema.keys), "value": to_json_object(value, tree.schema.values)}
    is_utf = codecs.lookup(sys.stdout.encoding).name.startswith("utf")
    print(json.dumps(entry, ensure_ascii=not is_utf))


def dump(tree: BTreeReader, _arguments: argparse.Namespace) -> int:
    """Print one JSON line for each entry, in key order."""
    for key, value in tree.scan():
        _print_entry(tree, key, value)
    return DONE


def get(tree: BTreeReader, arguments: argparse.Namespace) -> int:
    """Print the entries of each key as JSON lines. Returns 1 when a key has none."""
    keys = [_parse_key(text, tree) for text in arguments.keys]
    found = tree.get_many(keys)
    for key, values in zip(keys, found, strict=True):
        for value in values:
            _print_entry(tree, key, value)
    return DONE if all(found) else NOT_FOUND


def _parse_key(text: str, tree: BTreeReader) -> Key:
    """A key from its text: for one column the text itself, for several a JSON object."""
    columns = tree.schema.keys
    if len(columns) == 1:
        return (key_type(columns[0].type).to_stored(text, columns[0].name),)
    names = [column.name for column in columns]
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        parts = None
    is_flat = isinstance(parts, dict) and not any(isinstance(part, dict | list) for part in parts.values())
    if not is_flat or set(parts) != set(names):
        shown = text if len(text) <= SHOWN_TEXT else f"{text[: SHOWN_TEXT - 3]}..."
        raise WrongUsage("key", expected=f"a JSON object of {', '.join(names)}", found=shown)
    return tuple(key_type(column.type).to_stored(parts[column.name], column.name) for column in columns)


def check(tree: BTreeReader, _arguments: argparse.Namespace) -> int:
    """Read and check the whole file, and print its counts in one line."""
    census = tree.census()
    print(f"{census.entries} entries, {census.nodes} nodes, height {census.height}, {census.bytes} bytes")
    return DONE


def stat(tree: BTreeReader, _arguments: argparse.Namespace) -> int:
    """Print the header's figures, one per line. Reads no block but the root."""
    for part, columns in (("key", tree.schema.keys), ("value", tree.schema.values)):
        for column in columns:
            print(f"{part} {column.name} {column.type}{'' if column.nullable else ' not null'}")
    print(f"entries {'unknown' if tree.entries is None else tree.entries}")
    print(f"file {tree.file_bytes} bytes, of which header {tree.header_bytes}, upper levels {tree.upper_bytes}")
    for name, text in sorted(tree.metadata.items()):
        if name not in (SCHEMA_KEY, KEY_VALUE_KEY, ENTRIES_KEY):  # printed above
            print(_visible(f"{name} {text.decode(errors='replace')}"))
    return DONE


COMMANDS: dict[str, Callable[[BTreeReader, argparse.Namespace], int]] = {
    "dump": dump,
    "get": get,
    "check": check,
    "stat": stat,
}


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gnomon.btree", description="Look into one local index file.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        sub.add_argument("file", metavar="FILE")
        if command is get:
            help_ = "one column: its text; several: a JSON object; a key that begins with - comes after --"
            sub.add_argument("keys", metavar="KEY", nargs="+", help=help_)
    return parser.parse_args(argv)


def _fail(message: object, code: int) -> int:
    print(f"python -m gnomon.btree: {_visible(message)}", file=sys.stderr)
    return code


def _answer(arguments: argparse.Namespace) -> int:
    try:
        file = LocalFile(arguments.file)
    except OSError as error:
        return _fail(f"{arguments.file}: {error.strerror}", FAILED)
    try:
        return COMMANDS[arguments.command](BTreeReader(file), arguments)
    except (WrongUsage, KeyTypeError) as error:
        return _fail(error, USAGE)
    except BTreeError as error:
        return _fail(error, FAILED)
    finally:
        file.close()


def _drop_output() -> None:
    """Drop the output that could not be written. It is still in the buffer, and Python would try to write it again at
    exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(argv: list[str] | None = None) -> int:
    """Run a command line. Returns its exit code."""
    arguments = _arguments(argv)
    if sys.stdout is None:
        return _fail("output: it is closed", FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _answer(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output stopped reading
        _drop_output()
        return DONE
    except OSError as error:
        _drop_output()
        return _fail(f"output: {error.strerror}", FAILED)
    return code


def main() -> NoReturn:
    """Entry point of the process."""
    sys.exit(run())


if __name__ == "__main__":
    main()
