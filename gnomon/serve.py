"""gnomon serve: the index over HTTP."""

from typing import Annotated

import typer

from service.server import run
from service.settings import load_settings

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def serve(
    indexes: Annotated[list[str], typer.Argument(metavar="[NAME=]INDEX...", help="The first is the default.")],
    host: Annotated[str | None, typer.Option(help="Address to listen on; by default this machine only.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 for a free one; default 8000.")] = None,
) -> None:
    """Answer GET /rows/<key> until interrupted. Further settings: docs/settings.md (environment GNOMON_*)."""
    given = {"indexes": indexes, "host": host, "port": port}
    run(load_settings(**{name: value for name, value in given.items() if value is not None}))
