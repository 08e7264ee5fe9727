"""Azure's Blob storage for tests: Azurite, Microsoft's own emulator, installed once with npm and kept."""

import base64
import hashlib
import hmac
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.stores.process import Store, answers, free_port, locked, server, unavailable

VERSION = "3.35.0"
INSTALL_SECONDS = 600
CONTAINER = "lake"
ACCOUNT = "gnomon"
KEY = base64.b64encode(b"a key of the tests' own").decode()
API = "2021-08-06"  # any version of the protocol that Azurite speaks


@contextmanager
def azure_server(folder: Path) -> Iterator[Store]:
    """A server with one container."""
    program, port = _azurite(), free_port()
    places = ["--location", str(folder / "blobs"), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    env = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    with server([str(program), *places, *quiet], folder / "log", lambda: answers(port), 60, env):
        _make_container(endpoint)
        variables = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": endpoint,
        }
        yield Store(f"az://{CONTAINER}", variables)


def _azurite() -> Path:
    """The program, installed at the first call of all."""
    npm = shutil.which("npm")
    with locked(f"azurite-{VERSION}") as folder:
        program = folder / "node_modules/.bin/azurite-blob"
        if not program.exists():
            if npm is None:
                unavailable("Azurite cannot be installed: npm is not there (Debian's packages nodejs and npm)")
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{VERSION}"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                unavailable(f"Azurite cannot be installed: npm took more than {INSTALL_SECONDS} s")
            if done.returncode:
                unavailable(f"Azurite cannot be installed: {' '.join(done.stderr.split())[-300:]}")
        return program


def _make_container(endpoint: str) -> None:
    """Put Container, signed as Azure's Shared Key wants it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = "PUT" + 12 * "\n" + named + f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()
