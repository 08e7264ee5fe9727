"""gnomon serve: indexes over HTTP."""

from typing import Annotated

import typer

from gnomon.commands.config import found_file, served_indexes
from gnomon.commands.output import say
from gnomon.service.process import check as check_all
from gnomon.service.process import run
from gnomon.service.settings import Settings, load_settings

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


Indexes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=]INDEX", help="Paths or URLs; the first is the default.", show_default=False),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on; by default this machine only.")]
Port = Annotated[str | None, typer.Option(metavar="N", help="Port to listen on; 0 for a free one; default 8000.")]
RootPath = Annotated[
    str | None, typer.Option(metavar="PATH", help="The path under which a proxy serves it, like /gnomon.")
]
Workers = Annotated[str | None, typer.Option(metavar="N", help="Number of worker processes; default 1.")]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="Settings as TOML (GNOMON_CONFIG).")]
Pairs = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; may be repeated.")]
TokensFile = Annotated[str | None, typer.Option(metavar="FILE", help="Hashed bearer tokens that have access.")]
Certificate = Annotated[str | None, typer.Option(metavar="FILE", help="PEM file; serves HTTPS.")]
CertificateKey = Annotated[str | None, typer.Option(metavar="FILE", help="PEM file with the certificate's key.")]
Check = Annotated[bool, typer.Option("--check", help="Open everything that serving needs, report it, and exit.")]


@app.command()
def serve(
    indexes: Indexes = None,
    host: Host = None,
    port: Port = None,
    root_path: RootPath = None,
    freshness: Annotated[
        str | None,
        typer.Option(metavar="index|newest", help="Of a lake table: the version the index covers, or the newest one."),
    ] = None,
    workers: Workers = None,
    config: Config = None,
    pairs: Pairs = None,
    tokens_file: TokensFile = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    check: Check = False,
) -> None:
    """Answer GET /rows/<key> until interrupted. A flag overrides --set, --set overrides the environment (GNOMON_*), and
    that overrides the file: --config, GNOMON_CONFIG, or gnomon.toml. An error about a setting names them all."""
    flags = {
        "indexes": served_indexes(indexes),
        "host": host,
        "port": port,
        "root_path": root_path,
        "freshness": freshness,
        "workers": workers,
        "tokens_file": tokens_file,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    serve_settings(load_settings(flags, pairs or (), config, found=found_file()), check)


def serve_settings(settings: Settings, check: bool) -> None:
    """Serve, or check what serving needs."""
    if not check:
        run(settings)
        return
    for line in (*settings.overridden, *check_all(settings)):
        say(line)
