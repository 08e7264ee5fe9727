"""Builds, loads and appends on a cluster of four machines with HDFS, with Spark's standalone master and with YARN. Some
machines die during a job. Two more machines run the commands.

The workers have no Gnomon and share no disk. A machine dies in two ways: all its programs end and their connections
close; or it goes from the network without a last packet, as when its power fails.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.java import OPTIONS
from tests.machines import services
from tests.machines.network import ROOT, Machine, Network, network
from tests.machines.programs import ROWS
from tests.machines.services import HDFS, HEAD, LOST_SECONDS, SPARK, SPARK_HOME, WORKERS

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.process]

SECONDS = 900
PYTHON = ".venv/bin/python"
PROGRAM = [PYTHON, "-m", "tests.machines.programs"]
DRIVERS = ("client", "other")  # machines with the project: one that commands run on, one that looks
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "256m",
    "spark.executor.cores": "1",
    "spark.executor.instances": str(len(WORKERS)),
    "spark.executor.defaultJavaOptions": " ".join(OPTIONS),
    "spark.sql.shuffle.partitions": "6",
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.network.timeout": f"{LOST_SECONDS}s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
}
CONF = [f"{name}={value}" for name, value in SETTINGS.items()]
MASTERS = {"standalone": SPARK, "yarn": "yarn"}
DEATHS: dict[str, Callable[[Machine], None]] = {"ends": Machine.end, "is cut off": Machine.cut_off}
DEATHS: dict[str, Callable[[Machine], None]] = {"ends": Machine.end, "is cut off": Machine.cut_off}
# Of each job: the folder where a new name shows that its tasks are at work, and the name.
AT_WORK = {"build": ("index", r"\.avro"), "load": ("loaded", r"part-"), "dedup": ("lake", r"\.parquet")}


class Cluster:
    """The machines, with HDFS and the services of one kind of master."""

    def __init__(self, net: Network, kind: str) -> None:
        self._net, self._kind = net, kind
        self.machines = {name: net.start(name, has_project=name in DRIVERS) for name in (HEAD, *WORKERS, *DRIVERS)}
        for machine in self.machines.values():
            services.configure(machine)
        services.start_hdfs(self.machines[HEAD], self._workers())
        start = services.start_spark if kind == "standalone" else services.start_yarn
        start(self.machines[HEAD], self._workers())

    def _workers(self) -> list[Machine]:
        return [self.machines[name] for name in WORKERS]

    def replace(self, name: str) -> None:
        """Start a new machine with an empty disk under the name of one that died."""
        self.machines[name].end()
        self.machines[name] = machine = self._net.start(name, has_project=name in DRIVERS)
        services.configure(machine)
        if name in WORKERS:
            services.start_worker(machine, self._kind)
        services.wait_until_free(self.machines[HEAD], self._kind, len(WORKERS))

    def words(self, job: str, place: str) -> list[str]:
        """The command of a job."""
        master, index = MASTERS[self._kind], f"{place}/index"
        if job == "load":  # a command writes to a disk that all machines share
            return [*PROGRAM, "load", place, master, *CONF]
        words = {
            "build": ["build", f"{place}/lake", index, "--key", "k", "--buckets", "6", "--page-maps"],
            "dedup": ["dedup", index, f"{place}/batch", "--order-by", "v"],
        }
        conf = [word for setting in CONF for word in ("--conf", setting)]
        return [PYTHON, "-m", "gnomon", *words[job], "--master", master, *conf, "--json"]

    def ask(self, driver: str, *words: str) -> Any:
        """The result of a command that has to succeed: one JSON line."""
        done = self.machines[driver].run(*words, seconds=SECONDS)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def at_work(self, job: str, place: str) -> "subprocess.Popen[bytes]":
        """Start a job, and return when a task of it has written something."""
        folder, pattern = AT_WORK[job]
        watch = self.machines["other"].start(
            f"watch {job}", *PROGRAM, "watch", f"{place}/{folder}", pattern, folder=ROOT
        )
        log = self.machines["other"].folder / "log" / f"watch {job}"
        while watch.poll() is None and "watching" not in log.read_text():
            time.sleep(0.05)
        program = self.machines["client"].start(job, *self.words(job, place), folder=ROOT)
        assert watch.wait(SECONDS) == 0, (log.read_text(), self.said(job))
        assert program.poll() is None, f"the job ended before a machine died: {self.said(job)}"
        return program

    def said(self, job: str) -> str:
        return (self.machines["client"].folder / "log" / job).read_text()


@pytest.fixture(scope="module", params=MASTERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    java = os.environ.get("JAVA_HOME")
    variables = {
        "PATH": f"{java}/bin:{os.environ['PATH']}" if java else os.environ["PATH"],
        "HOME": str(Path.home()),
        "HADOOP_CONF_DIR": services.CONF,
        "HADOOP_USER_NAME": "lake",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": "2.13",
        **({"JAVA_HOME": java} if java else {}),
    }
    with network(tmp_path_factory.mktemp("machines"), (HEAD, *WORKERS, *DRIVERS), variables) as net:
        yield Cluster(net, request.param)


def check(cluster: Cluster, place: str, batch: str) -> None:
    found = cluster.ask("other", *PROGRAM, "check", place, batch)
    rows = ROWS + ROWS // 4 if batch == "with batch" else ROWS
    whole = {"rows": rows, "missing": 0, "extra": 0}
    assert found == {"source": whole, "index": whole, "faults": []}


def test_jobs_run_on_machines_that_have_no_gnomon_and_share_no_disk(cluster: Cluster) -> None:
    place = f"{HDFS}/no death"
    cluster.ask("client", *PROGRAM, "make", place)
    assert cluster.ask("client", *cluster.words("build", place))["rows_indexed"] == ROWS
    assert cluster.ask("client", *cluster.words("load", place)) == {"rows": ROWS // 2, "missing": 0, "extra": 0}
    assert cluster.ask("client", *cluster.words("dedup", place))["appended"] == ROWS // 4
    check(cluster, place, "with batch")


def test_a_datanode_that_died_is_left_out(cluster: Cluster) -> None:
    """By the namenode's own choice each third call would try it, for ten minutes."""
    place = f"{HDFS}/left out"
    cluster.ask("client", *PROGRAM, "make", place)
    DEATHS["is cut off"](cluster.machines["two"])
    assert cluster.ask("client", *PROGRAM, "tries", f"{place}/lake", "two") == {"reads": 60, "tries": 1}
    cluster.replace("two")


@pytest.mark.parametrize("death", DEATHS)
def test_a_job_finishes_where_a_machine_of_tasks_and_data_dies(
    cluster: Cluster, death: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{HDFS}/a worker {death}"
    cluster.ask("client", *PROGRAM, "make", place)
    for job in AT_WORK:
        program = cluster.at_work(job, place)
        DEATHS[death](cluster.machines["two"])
        died = time.monotonic()
        assert program.wait(SECONDS) == 0, cluster.said(job)
        with capsys.disabled():
            print(f"\n{job}: ended {time.monotonic() - died:.0f} s after a machine died ({death})")
        check(cluster, place, "with batch" if job == "dedup" else "without")
        if job == "load":
            loaded = json.loads(cluster.said(job).splitlines()[-1])
            assert loaded == {"rows": ROWS // 2, "missing": 0, "extra": 0}
        cluster.replace("two")


def test_a_job_whose_driver_dies_is_finished_by_the_next_run(cluster: Cluster) -> None:
    place = f"{HDFS}/the driver ends"
    cluster.ask("client", *PROGRAM, "make", place)
    for job in AT_WORK:
        program = cluster.at_work(job, place)
        cluster.machines["client"].end()
        assert program.wait(SECONDS) != 0
        cluster.replace("client")
        cluster.ask("client", *cluster.words(job, place))
        check(cluster, place, "with batch" if job == "dedup" else "without")
    assert cluster.ask("client", *cluster.words("dedup", place))["appended"] == 0
    vacuum = [PYTHON, "-m", "gnomon", "vacuum", f"{place}/index", "--grace", "0s", "--json"]
    cluster.ask("client", *vacuum)
    check(cluster, place, "with batch")
