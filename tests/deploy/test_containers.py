"""The images and the manifests, run in podman: deploy/try-images.sh builds the images and runs these tests.

Each prints what it measured; deploy/README.md has the figures of one run."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gnomon.shadow.storage import storage_at
from tests.deploy.deployed import DEPLOY, compose, pod_spec
from tests.deploy.podman import Container, compose_words, get, podman, run
from tests.deploy.pods import Cluster, Front, Pod, bytes_of, data_of, objects_for
from tests.service.load import Load
from tests.service.processes import until
from tests.shadow.make_index import write_source
from tests.stores.go import go_program
from tests.stores.process import answers, free_port
from tests.stores.s3 import GATEWAY, VERSION

pytestmark = pytest.mark.nightly

USER = 10001
URLS = [f"https://a.example/{number}" for number in range(20_000)]
PRESENT = (URLS[0], URLS[777], URLS[-1])  # of the keys that are asked for under load
S3_PORT = 7070
SECONDS_UNNOTICED = 2.0  # for which a load balancer still sends requests to a pod that ends
REQUESTS, SECONDS_OF_LOAD = 2000, 60.0
NAME = f"gnomon-test-{os.getpid()}"  # what the names of all containers here begin with


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    if shutil.which("podman") is None:
        pytest.skip("no podman on the PATH (Debian: podman)")
    if any(run("image", "exists", f"gnomon-{name}").returncode for name in ("service", "job")):
        pytest.skip("no images gnomon-service and gnomon-job: deploy/try-images.sh builds them")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that user 10001 can reach: pytest's own are root's alone."""
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    return tmp_path


def table_of(urls: list[str]) -> pa.Table:
    return pa.table({"url": urls, "n": list(range(len(urls)))})


def shell(image: str, script: str) -> str:
    return podman("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script)


@pytest.mark.parametrize("name", ["service", "job"])
def test_an_image_has_what_its_program_needs_and_no_build_tools(name: str) -> None:
    image = f"gnomon-{name}"
    size = int(podman("image", "inspect", "--format", "{{.Size}}", image))
    base = int(podman("image", "inspect", "--format", "{{.Size}}", base_image()))
    print(f"\n{image}: {size / 1e6:.0f} MB, of these {base / 1e6:.0f} MB the base")
    assert shell(image, "id -u; id -g").split() == [str(USER)] * 2
    assert shell(image, "cat /etc/pip.conf /run/certificates.crt 2>/dev/null || true") == ""  # mounts of the build
    assert "inner loops: compiled" in shell(image, "gnomon --version")
    found = shell(image, "for one in java tini pip gcc; do command -v $one || true; done").split()
    assert [Path(one).name for one in found] == (["java", "tini"] if name == "job" else [])
    assert shell(image, "stat -c %u /scratch 2>/dev/null || true") == (str(USER) if name == "job" else "")
    assert shell(image, "python -c 'import importlib.util as u; print(u.find_spec(\"pyspark\") is not None)'") == str(
        name == "job"
    )


def test_a_container_that_takes_more_memory_than_its_limit_is_killed(tmp_path: Path) -> None:
    limits = ["--memory", "64m", "--memory-swap", "64m"]
    program = ["--entrypoint", "python", "gnomon-service", "-c", "bytearray(200 << 20)"]
    # in a folder of its own: conmon leaves a file `oom` in the current one
    done = run("run", "--rm", "--network", "none", *limits, *program, folder=tmp_path)
    assert done.returncode == 128 + signal.SIGKILL


def base_image() -> str:
    [line] = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if line.endswith(" AS base")]
    return line.split()[1]


def make_lake(folder: Path) -> dict[str, str]:
    """A lake, and a folder for indexes that user 10001 may write. Returns their places for the compose file."""
    half = len(URLS) // 2
    tables = {
        "crawl/dt=2026-01-01/p.parquet": table_of(URLS[:half]),
        "crawl/dt=2026-01-02/p.parquet": table_of(URLS[half:]),
    }
    write_source(folder / "lake", tables)
    (folder / "indexes").mkdir()
    os.chown(folder / "indexes", USER, USER)
    return {"${LAKE:-./lake}": str(folder / "lake"), "${INDEXES:-./indexes}": str(folder / "indexes")}


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_job_builds_and_the_service_serves_on_read_only_roots(folder: Path, engine: str) -> None:
    places = make_lake(folder)
    build = compose()["services"]["build"]
    build["command"] += ["--engine", engine]
    volume = f"{NAME}-scratch"
    try:
        with Container(f"{NAME}-build", *compose_words(build, {**places, "scratch:": f"{volume}:"}, DEPLOY)) as job:
            code = job.wait(600)
            seconds = time.monotonic() - job.begun
            assert code == 0, job.logs()
            assert f"{len(URLS)}" in job.logs().replace(",", "")
    finally:
        run("volume", "rm", volume)
    print(f"\nbuild --engine {engine}: {len(URLS)} rows, {seconds:.1f} s from the start of the container")
    port = free_port()
    with Container(f"{NAME}-service", *published(port), *compose_words(service(), places, DEPLOY)) as container:
        until(lambda: is_ready(port, container))
        print(f"service: ready {time.monotonic() - container.begun:.1f} s after the start of the container")
        for number in (0, len(URLS) - 1):
            assert row(port, number) == {"url": URLS[number], "n": number % (len(URLS) // 2)}
        check_confined(container)
        check_health(container)
        reload_under_load(container, port)
        print(f"service: {memory_of(container)} in use after these requests, limit {service()['mem_limit']}")
        stop_with_a_request_in_progress(container, port)


def service() -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"]["service"]
    return found


def published(port: int) -> list[str]:
    [published] = service()["ports"]
    host, _, inside = published.rsplit(":", 2)
    return ["--publish", f"{host}:{port}:{inside}"]


def is_ready(port: int, container: Container) -> bool:
    assert container.inspect("{{.State.Status}}") == "running", container.logs()
    try:
        return get("127.0.0.1", port, "/readyz", 5)[0] == 200
    except OSError:
        return False


def row(port: int, number: int) -> dict[str, Any]:
    status, body = get("127.0.0.1", port, f"/rows?url={URLS[number]}&_columns=url,n", 30)
    assert status == 200, body
    [found] = json.loads(body)["rows"]
    return dict(found)


def memory_of(container: Container) -> str:
    return podman("stats", "--no-stream", "--format", "{{.MemUsage}}", container.name).split(" / ")[0]


def check_confined(container: Container) -> None:
    status = container.execute("cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [str(USER)] * 4
    assert (fields["CapEff"], fields["CapBnd"], fields["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert fields["Seccomp"] == "2"
    for place in ("/x", "/opt/gnomon/x", "/indexes/x", "/lake/x", "/etc/gnomon/x"):
        assert "Read-only file system" in container.execute("touch", place).stderr
    limit = container.execute(
        "sh", "-c", "cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    assert int(limit.stdout) == 2 * 1024**3
    # the limit of /tmp holds, too
    too_much = container.execute("sh", "-c", "head -c 70000000 /dev/zero > /tmp/x; rm /tmp/x")
    assert "No space left" in too_much.stderr


def check_health(container: Container) -> None:
    """Run the image's own check as an engine does: it succeeds; and it fails for a service that is stopped."""
    assert json.loads(container.inspect("{{json .Config.Healthcheck}}"))["Test"][0] == "CMD"
    assert run("healthcheck", "run", container.name).returncode == 0
    container.signal("STOP")
    workers = container.execute("sh", "-c", "cat /proc/1/task/1/children").stdout.split()
    container.execute("sh", "-c", f"kill -STOP {' '.join(workers)}")
    try:
        assert run("healthcheck", "run", container.name).returncode == 1
    finally:
        container.execute("sh", "-c", f"kill -CONT {' '.join(workers)}")
        container.signal("CONT")
    assert run("healthcheck", "run", container.name).returncode == 0


def reload_under_load(container: Container, port: int) -> None:
    with Load(port, "/rows?url=https://a.example/7", every_seconds=0.02) as load:
        container.signal("HUP")
        until(lambda: "SIGHUP: 2 of 2 workers were replaced" in container.logs())
    print(f"SIGHUP: {load.summary()}")
    assert (load.failed, set(load.statuses)) == ([], {200})


def stop_with_a_request_in_progress(container: Container, port: int) -> None:
    grace = int(service()["stop_grace_period"].removesuffix("s"))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        body = json.dumps({"keys": URLS[:1]}).encode()
        head = f"POST /rows HTTP/1.1\r\nHost: gnomon\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the request is in progress
        stopped: list[tuple[int, float]] = []
        stopping = threading.Thread(target=lambda: stopped.append(container.stop(grace)))
        stopping.start()
        until(lambda: "requests in progress: 1" in container.logs())
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        stopping.join()
    [(code, seconds)] = stopped
    print(f"SIGTERM: ended with {code} after {seconds:.1f} s, the request in progress answered")
    assert code == 0
    assert seconds < grace


def test_a_build_ends_at_once_with_all_its_processes_when_its_container_is_stopped(folder: Path) -> None:
    places = {**make_lake(folder), "scratch:": f"{NAME}-stopped:"}
    build = compose()["services"]["build"]
    build["command"] += ["--engine", "spark"]
    try:
        with Container(f"{NAME}-stopped", *compose_words(build, places, DEPLOY)) as job:
            until(lambda: "java" in job.execute("sh", "-c", "cat /proc/[0-9]*/comm").stdout)
            assert job.execute("cat", "/proc/1/comm").stdout == "tini\n"
            code, seconds = job.stop(30)
            print(f"\nSIGTERM in a build with Spark: ended with {code} after {seconds:.1f} s")
            assert code == 128 + signal.SIGTERM
            assert seconds < 10
        with Container(f"{NAME}-again", *compose_words(build, places, DEPLOY)) as job:
            assert job.wait(600) == 0, job.logs()
    finally:
        run("volume", "rm", f"{NAME}-stopped")


@pytest.fixture
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    gateway = go_program(GATEWAY, VERSION)
    if gateway is None:
        pytest.skip("no S3 server: deploy/setup.sh --stores installs Go, which builds it")
    for place in ("objects/lake", "objects/indexes", "metadata"):
        (folder / "store" / place).mkdir(parents=True)
    podman("network", "create", "--internal", NAME)
    words = [
        "--network",
        NAME,
        "--user",
        "0",
        "--volume",
        f"{gateway}:/gateway:ro",
        "--volume",
        f"{folder}/store:/store",
    ]
    words += ["--env", "ROOT_ACCESS_KEY=example", "--env", "ROOT_SECRET_KEY=example", "--entrypoint", "/gateway"]
    command = ["--port", f":{S3_PORT}", "--region", "eu-central-1", "--quiet"]
    try:
        with Container(
            f"{NAME}-store",
            *words,
            "gnomon-service",
            *command,
            "posix",
            "--sidecar",
            "/store/metadata",
            "/store/objects",
        ) as store:
            address = store.address
            until(lambda: answers(S3_PORT, address))
            objects, token = objects_for(folder, f"http://{address}:{S3_PORT}")
            for name, value in data_of(objects["Secret/gnomon-store"]).items():
                monkeypatch.setenv(name, value)
            tables = {f"dt=2026-01-0{day}/p.parquet": table_of(URLS[day - 1 :: 2]) for day in (1, 2)}
            write_source(storage_at("s3://lake/crawl"), tables)
            yield Cluster(NAME, folder, token, objects)
    finally:
        run("network", "rm", "--force", NAME)


def roll(
    pods: list[Pod], cluster: Cluster, stack: ExitStack, front: Front
) -> tuple[list[Pod], list[tuple[int, float]]]:
    """Replace the pods in turn, as the Deployment says: one more than its replicas, none fewer that are ready. The
    front learns late that a pod ends. Returns the new pods, and how the old ones ended."""
    strategy = cluster.objects["Deployment/gnomon"]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    ended: list[tuple[int, float]] = []
    ends = []
    current = list(pods)
    for old in pods:
        fresh = stack.enter_context(cluster.pod())
        until(lambda fresh=fresh: fresh.is_ready)  # type: ignore[misc]
        current.append(fresh)
        front.send_to(current)
        ends.append(threading.Thread(target=lambda old=old: ended.append(old.end())))  # type: ignore[misc]
        ends[-1].start()
        time.sleep(SECONDS_UNNOTICED)
        current.remove(old)
        front.send_to(current)
    for one in ends:
        one.join()
    return current, ended


def test_jobs_and_pods_of_the_manifests_run_and_a_rollout_fails_no_request(cluster: Cluster) -> None:
    cluster.run_job("gnomon-build")
    deployment = cluster.objects["Deployment/gnomon"]["spec"]
    front = Front(cluster.folder, cluster.token)
    with ExitStack() as stack:
        pods = [stack.enter_context(cluster.pod()) for _ in range(deployment["replicas"])]
        for pod in pods:
            until(lambda pod=pod: pod.is_ready)  # type: ignore[misc]
        assert get(pods[0].ip, pods[0].port, "/rows?url=x", 30)[0] == 401  # without a token
        with front.running(pods):
            begin = time.monotonic()
            with Load(front.port, *paths(), every_seconds=0.11) as load:
                pods, ended = roll(pods, cluster, stack, front)
                seconds = time.monotonic() - begin
                until(lambda: load.requests >= REQUESTS and time.monotonic() > begin + SECONDS_OF_LOAD)
            print(f"rolling restart of {len(pods)} pods in {seconds:.1f} s: {load.summary()}")
            print(
                f"pods: ready {[round(one.ready_after, 1) for one in pods]} s after their start, old ones ended {ended}"
            )
            print(f"pods: {[memory_of(one) for one in pods]} in use, /tmp holds {[one.volumes.used() for one in pods]}")
            assert (load.failed, set(load.statuses)) == ([], {200, 404})
            assert {row["url"] for row in rows_of(load)} == set(PRESENT)
            assert load.requests >= REQUESTS
            assert [code for code, _ in ended] == [0] * deployment["replicas"]
            grace = deployment["template"]["spec"]["terminationGracePeriodSeconds"]
            assert all(taken < grace for _, taken in ended)
            assert [one.ill for one in pods] == [[]] * len(pods)
            cluster.run_job("gnomon-tidy")
            assert get("127.0.0.1", front.port, paths()[0], 30)[0] == 200
            check_that_the_pause_is_needed(pods, cluster, stack, front)


def paths() -> list[str]:
    return [f"/indexes/crawl/rows?url={one}" for one in (*PRESENT, "https://a.example/none")]


def rows_of(load: Load) -> list[dict[str, Any]]:
    return [row for one in load.answers if one.status == 200 for row in json.loads(one.body)["rows"]]


def check_that_the_pause_is_needed(pods: list[Pod], cluster: Cluster, stack: ExitStack, front: Front) -> None:
    """Without the preStop pause the same restart fails requests: the measurement above can fail."""
    [container] = pod_spec(cluster.objects["Deployment/gnomon"])["containers"]
    assert bytes_of(container["resources"]["limits"]["memory"]) == 2 * 1024**3
    for pod in pods:
        pod.pause = 0
    with Load(front.port, *paths(), every_seconds=0.11) as load:
        roll(pods, cluster, stack, front)
    print(f"the same without the preStop pause: {load.summary()}")
    assert load.statuses[502] > 0
