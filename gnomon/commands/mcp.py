"""gnomon mcp: indexes as tools of agents."""

import os
import signal
from typing import Annotated, NoReturn

import typer

from gnomon.commands.config import found_file, served_indexes
from gnomon.commands.exit_codes import INTERRUPTED
from gnomon.commands.serve import Check, Config, Host, Indexes, Pairs, Port, TokensFile, serve_settings
from gnomon.service import logs
from gnomon.service.application import create_app
from gnomon.service.mcp import run_stdio
from gnomon.service.settings import load_settings
from gnomon.shadow import UsageError

TOKEN = "GNOMON_TOKEN"  # of the user who starts the process, where the settings have tokens

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def mcp(
    indexes: Indexes = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve HTTP, with the tools at /mcp, like serve --set mcp=true.")
    ] = False,
    host: Host = None,
    port: Port = None,
    config: Config = None,
    pairs: Pairs = None,
    tokens_file: TokensFile = None,
    check: Check = False,
) -> None:
    """Answer agents: tools of the Model Context Protocol (MCP) over standard input and output, or with --http at /mcp.
    The tools describe an index, and return the row of a key, the rows of keys, keys in order, and the history of a key.
    Settings as of serve. Where they have tokens, GNOMON_TOKEN is the token of this process."""
    flags = {
        "indexes": served_indexes(indexes),
        "host": host,
        "port": port,
        "tokens_file": tokens_file,
        "mcp": "true",
    }
    settings = load_settings(flags, pairs or (), config, found=found_file())
    if http or check:
        serve_settings(settings, check)
        return
    if host is not None or port is not None:
        raise UsageError("--host, --port: expected --http with it; without it no port is opened")
    lines = logs.start()
    settings.log_overridden()

    def interrupted(*_: object) -> NoReturn:
        logs.stop(lines)
        os._exit(INTERRUPTED)  # an exception would wait for the thread that reads standard input

    signal.signal(signal.SIGINT, interrupted)
    try:
        run_stdio(create_app(settings, lines=lines), os.environ.get(TOKEN))
    finally:
        logs.stop(lines)
