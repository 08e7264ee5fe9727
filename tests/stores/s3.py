"""An S3 server for tests: Versity's gateway over a local folder, a real store whose conditional puts are atomic, built
once with `go install` and kept; moto's server where Go is not there (GNOMON_TEST_S3=moto asks for it)."""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stores.go import go_program
from tests.stores.process import Store, answers, free_port, server

GATEWAY = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
BUCKET = "lake"
KEY, SECRET = "gnomon", "gnomon-tests"


@contextmanager
def s3_server(folder: Path) -> Iterator[Store]:
    """A server with one bucket."""
    program = _gateway()
    if program is None:
        with moto_server() as store:
            yield store
        return
    port = free_port()
    with _run_gateway(program, folder, port):
        yield _store(port)


def _store(port: int) -> Store:
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    return Store(f"s3://{BUCKET}", variables)


def _gateway() -> Path | None:
    """The program; None where it cannot be built, or is not wanted."""
    return None if os.environ.get("GNOMON_TEST_S3") == "moto" else go_program(GATEWAY, VERSION)


@contextmanager
def _run_gateway(program: Path, folder: Path, port: int) -> Iterator[None]:
    for name in ("objects/" + BUCKET, "metadata"):
        (folder / name).mkdir(parents=True)
    place = ["--sidecar", str(folder / "metadata"), str(folder / "objects")]
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", "us-east-1", "--quiet", "posix", *place]
    env = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with server(command, folder / "log", lambda: answers(port), 30, env):
        yield


@contextmanager
def moto_server() -> Iterator[Store]:
    """Moto's server, in a thread of this process, with one bucket."""
    from moto.server import ThreadedMotoServer

    port = free_port()
    moto = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    moto.start()
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request")
        urllib.request.urlopen(request, timeout=30).close()
        yield _store(port)
    finally:
        moto.stop()
