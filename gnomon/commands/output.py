"""How commands print: results on stdout, everything else on stderr."""

import json
import sys

SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def print_json(value: object) -> None:
    """A result as one JSON line on stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def say(text: str) -> None:
    """A line for people, on stdout."""
    print(text, flush=True)


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"gnomon: {text}", file=sys.stderr, flush=True)


def counted(count: int, noun: str) -> str:
    """A number of things: 1 task, 2 tasks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def megabytes(count: int) -> str:
    """A number of bytes in the largest unit that leaves at least one."""
    return next((f"{count / size:,.1f} {unit}" for size, unit in SIZES if count >= size), f"{count} bytes")
