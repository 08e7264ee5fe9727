"""Arguments and options that several commands declare."""

from typing import Annotated

import typer

IndexFolder = Annotated[str, typer.Argument(help="The index folder.")]
Full = Annotated[bool, typer.Option("--full", help="Index every file again.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")]
