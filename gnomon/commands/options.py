"""Arguments and options that several commands declare."""

from typing import Annotated

import typer

IndexFolder = Annotated[str, typer.Argument(help="The index folder.")]
Full = Annotated[bool, typer.Option("--full", help="Index every file again.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark master URL; by default this machine.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A Spark setting: spark.name=value; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")]
