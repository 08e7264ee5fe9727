"""deploy/systemd/ on a machine with systemd, installed by the lines of deploy/README.md.

The machine is a container whose first process is systemd. deploy/try-images.sh builds it, and runs this test."""

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.deploy.deployed import DEPLOY, blocks
from tests.deploy.podman import Container, get, podman, run
from tests.service.load import Load
from tests.service.processes import until
from tests.shadow.make_index import write_source
from tests.stores.process import free_port

pytestmark = pytest.mark.nightly

URLS = [f"https://a.example/{number}" for number in range(20_000)]
SERVICE = "gnomon-serve.service"


class Machine(Container):
    """A container that runs systemd."""

    def do(self, command: str) -> str:
        """The output of a command of the shell that succeeds, run in the folder with deploy/."""
        done = self.execute("sh", "-ec", f"cd / && {command}")
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()[-2000:]}"
        return done.stdout.strip()

    def property(self, name: str) -> str:
        return self.do(f"systemctl show {SERVICE} --property {name} --value")

    def journal(self) -> str:
        return self.execute("journalctl", "--no-pager", "--output=cat", "--unit=gnomon-*").stdout


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[Machine, int]]:
    """The machine, ready for lines of the runbook, and the port of this machine that leads to its port 8000."""
    if shutil.which("podman") is None or run("image", "exists", "gnomon-machine").returncode:
        pytest.skip("no podman, or no image gnomon-machine: deploy/try-images.sh builds it")
    tables = {"p.parquet": pa.table({"url": URLS, "n": list(range(len(URLS)))})}
    write_source(tmp_path / "lake" / "crawl", tables)
    for path in (tmp_path / "lake").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (tmp_path / "lake").chmod(0o755)
    port = free_port()
    words = ["--systemd=always", "--privileged", "--publish", f"127.0.0.1:{port}:8000"]
    words += ["--volume", f"{DEPLOY}:/deploy:ro", "--volume", f"{tmp_path}/lake:/lake:ro", "gnomon-machine"]
    with Machine(f"gnomon-machine-{os.getpid()}", *words) as found:
        until(lambda: found.execute("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"))
        yield found, port


def lines_of_the_runbook() -> list[str]:
    """What an operator types, but for the environments of Python, which the machine has."""
    page = (DEPLOY / "README.md").read_text()
    section = page.partition("### On a machine with systemd\n")[2].partition("\n### ")[0]
    lines = blocks(section)
    assert [line.split()[0] for line in lines[:2]] == ["python3", "python3"]
    return lines[2:]


def test_the_runbook_installs_units_that_build_serve_reload_and_come_back(machine: tuple[Machine, int]) -> None:
    host, port = machine
    for line in lines_of_the_runbook():
        begin = time.monotonic()
        host.do(line)
        if "systemctl start" in line:
            print(f"\n{line}: {time.monotonic() - begin:.1f} s")
    begin = time.monotonic()
    until(lambda: is_ready(port))
    print(f"gnomon-serve: ready {time.monotonic() - begin:.1f} s after systemctl returned")
    assert f"{len(URLS):,} rows indexed" in host.journal()
    assert "gnomon-build.timer" in host.do("systemctl list-timers --no-pager")
    status, body = get("127.0.0.1", port, f"/rows?url={URLS[7]}", 30)
    assert (status, json.loads(body)["rows"]) == (200, [{"url": URLS[7], "n": 7}])
    check_confined(host)
    with Load(port, f"/rows?url={URLS[7]}", every_seconds=0.02) as load:
        host.do(f"systemctl reload {SERVICE}")
        until(lambda: "SIGHUP: 2 of 2 workers were replaced" in host.journal())
    print(f"systemctl reload: {load.summary()}")
    assert (load.failed, set(load.statuses)) == ([], {200})
    host.do(f"kill -KILL {host.property('MainPID')}")
    until(lambda: host.property("NRestarts") == "1" and is_ready(port))
    stop_with_a_request_in_progress(host, port)


def is_ready(port: int) -> bool:
    try:
        return get("127.0.0.1", port, "/readyz", 5)[0] == 200
    except OSError:
        return False


def check_confined(host: Machine) -> None:
    process = host.property("MainPID")
    fields = dict(line.split(":\t", 1) for line in host.do(f"cat /proc/{process}/status").splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [host.do("id -u gnomon")] * 4
    assert (fields["CapEff"], fields["CapBnd"], fields["NoNewPrivs"], fields["Seccomp"]) == (
        "0" * 16,
        "0" * 16,
        "1",
        "2",
    )
    inside = f"nsenter --target {process} --mount setpriv --reuid gnomon --regid gnomon --clear-groups touch"
    for place in ("/x", "/indexes/x", "/opt/gnomon/x", "/etc/gnomon/x", "/lake/x"):
        assert "Read-only file system" in host.execute("sh", "-c", f"{inside} {place}").stderr
    host.do(f"{inside} /tmp/x && test ! -e /tmp/x")  # its own /tmp
    assert host.property("MemoryMax") == str(2 * 1024**3)


def stop_with_a_request_in_progress(host: Machine, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        body = json.dumps({"keys": URLS[:1]}).encode()
        head = f"POST /rows HTTP/1.1\r\nHost: gnomon\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the request is in progress
        begin = time.monotonic()
        stopping = threading.Thread(target=lambda: host.do(f"systemctl stop {SERVICE}"))
        stopping.start()
        until(lambda: "requests in progress: 1" in host.journal())
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        stopping.join()
    print(f"systemctl stop: {time.monotonic() - begin:.1f} s, the request in progress answered")
    assert (host.property("Result"), host.property("ExecMainStatus"), host.property("ActiveState")) == (
        "success",
        "0",
        "inactive",
    )
    assert podman("inspect", "--format", "{{.State.Status}}", host.name) == "running"
