"""Output of commands, and options that several commands share."""

import json
import sys
from typing import Annotated

import typer

from gnomon.commands.config import completed_names, index_argument

IndexFolder = Annotated[
    str,
    typer.Argument(
        help="The index folder, or its name in gnomon.toml.", callback=index_argument, autocompletion=completed_names
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Index every file again.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark master URL; by default this machine.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A Spark setting: spark.name=value; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")]


SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def print_json(value: object) -> None:
    """Print a result as one JSON line on stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def say(text: str) -> None:
    """Print a line for people on stdout."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print one line on stderr."""
    print(f"gnomon: {text}", file=sys.stderr, flush=True)


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 task, 2 tasks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def megabytes(count: int) -> str:
    """A number of bytes in the largest unit in which it is at least 1."""
    return next((f"{count / size:,.1f} {unit}" for size, unit in SIZES if count >= size), f"{count} bytes")
