"""An open-loop load of constant rate, by vegeta.

A request is due at a fixed time, whether the requests before it were answered or not. Its latency counts from that
time. So waiting counts, even where the generator itself sent the request too late. vegeta is built once, by Go, from
the versions and checksums of `bench/vegeta/`."""

import csv
import math
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from bench.server import Server

SOURCE = Path(__file__).parent / "vegeta"
PROGRAM = "github.com/tsenart/vegeta/v12"
TOOLS = Path(".bench/tools")
BUILD_SECONDS = 600
CONNECTIONS = 256  # most requests in flight; further ones are late, which counts
TIMEOUT_SECONDS = 10
SPARE_SECONDS = 60


class Load(NamedTuple):
    """The result of a load. `right` answers had the expected status. Times are in ms, from the time at which a request
    was due, over all requests, including failed ones."""

    requested: float  # requests a second
    achieved: float  # right answers a second, over the time until the last answer
    sent: int
    right: int
    statuses: dict[int, int]
    p50: float
    p99: float
    p999: float
    longest: float
    generator_cpu: float  # cores that the generator used
    server_cpu: float  # cores that the server used


def vegeta() -> Path:
    """The program, which is built first if missing. RuntimeError without Go."""
    program = (TOOLS / "vegeta").absolute()
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("vegeta makes the load and is built with Go: expected go on the PATH")
        program.parent.mkdir(parents=True, exist_ok=True)
        command = [go, "build", "-mod=readonly", "-o", str(program), PROGRAM]
        subprocess.run(command, cwd=SOURCE, check=True, timeout=BUILD_SECONDS)
    return program


def write_targets(path: Path, server: Server, keys: Iterable[str]) -> None:
    """Write a request for each key, in this order. A load starts over at the end."""
    lines = (f"GET http://{server.host}:{server.port}/rows/{quote(key, safe='')}\n\n" for key in keys)
    path.write_text("".join(lines))


def attack(server: Server, targets: Path, rate: float, seconds: float, expected: int = 200) -> Load:
    """Send `rate` requests a second for `seconds`, and wait for the answers."""
    a_minute = round(rate * 60)
    binary = targets.with_suffix(".results")
    command = [str(vegeta()), "attack", f"-targets={targets}", f"-output={binary}", "-max-body=0"]
    command += [f"-rate={a_minute}/1m", f"-duration={seconds}s", f"-timeout={TIMEOUT_SECONDS}s"]
    command += [f"-max-workers={CONNECTIONS}", f"-connections={CONNECTIONS}", "-redirects=-1", "-http2=false"]
    cpu, generator = server.cpu_seconds, _children_cpu()
    subprocess.run(command, check=True, timeout=seconds + TIMEOUT_SECONDS + SPARE_SECONDS)
    cpu, generator = server.cpu_seconds - cpu, _children_cpu() - generator
    encoded = subprocess.run(
        [str(vegeta()), "encode", "-to=csv", str(binary)], check=True, capture_output=True, text=True
    )
    binary.unlink()
    rows = [(int(one[8]), int(one[0]), int(one[1]), int(one[2])) for one in csv.reader(encoded.stdout.splitlines())]
    return load_of(rows, a_minute / 60, expected, generator, cpu)


def load_of(
    rows: Sequence[tuple[int, int, int, int]], rate: float, expected: int, generator_cpu: float, server_cpu: float
) -> Load:
    """The load of rows (number, sent at, status, latency), in nanoseconds."""
    begin = min(sent - number * 1e9 / rate for number, sent, _, _ in rows)
    late = sorted((sent + took - begin - number * 1e9 / rate) / 1e6 for number, sent, _, took in rows)
    lasted = (max(sent + took for _, sent, _, took in rows) - begin) / 1e9
    statuses = Counter(status for _, _, status, _ in rows)
    right = statuses[expected]
    window = max(lasted, len(rows) / rate)
    return Load(
        *(rate, right / window, len(rows), right, dict(statuses)),
        *(quantile(late, 0.5), quantile(late, 0.99), quantile(late, 0.999), late[-1]),
        *(generator_cpu / window, server_cpu / window),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least value such that this share of all values does not exceed it."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
