"""gnomon catalog: an Iceberg REST catalog that plans scans through indexes."""

from typing import Annotated

import typer

import gnomon.service.catalog  # noqa: F401 an error about the extra comes before any other
from gnomon.commands.config import found_file, served_indexes
from gnomon.commands.serve import (
    Certificate,
    CertificateKey,
    Check,
    Config,
    Host,
    Indexes,
    Pairs,
    Port,
    RootPath,
    TokensFile,
    Workers,
    serve_settings,
)
from gnomon.service.settings import load_settings
from gnomon.shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def catalog(
    indexes: Indexes = None,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The Iceberg REST catalog to which requests are passed on.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="Or a catalog that pyiceberg's settings name."),
    ] = None,
    host: Host = None,
    port: Port = None,
    root_path: RootPath = None,
    workers: Workers = None,
    config: Config = None,
    pairs: Pairs = None,
    tokens_file: TokensFile = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    check: Check = False,
) -> None:
    """An Iceberg REST catalog in front of another one, which plans scans through indexes. Settings as of serve."""
    flags = {
        "indexes": served_indexes(indexes),
        "upstream": upstream,
        "catalog": name,
        "host": host,
        "port": port,
        "root_path": root_path,
        "workers": workers,
        "tokens_file": tokens_file,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    settings = load_settings(flags, pairs or (), config, found=found_file())
    if (settings.upstream is None) == (settings.catalog is None):
        raise UsageError("expected one catalog behind: --upstream URL, or --catalog NAME of pyiceberg's configuration")
    serve_settings(settings, check)
