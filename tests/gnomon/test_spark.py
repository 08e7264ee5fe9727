"""The session of a command, on a cluster that is not there."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.stores.process import free_port

pytestmark = pytest.mark.spark

PROGRAM = "from gnomon.commands import spark; spark.WAIT_SECONDS = 1; from gnomon import main; main()"


def test_a_command_says_that_it_waits_for_a_cluster(tmp_path: Path) -> None:
    """YARN's client asks for a quarter of an hour whether the address answers by then."""
    nobody = f"127.0.0.1:{free_port()}"
    setting = f"<property><name>yarn.resourcemanager.address</name><value>{nobody}</value></property>"
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{setting}</configuration>")
    (tmp_path / "a.csv").write_text("k\n1\n")
    words = ["build", str(tmp_path / "a.csv"), str(tmp_path / "index"), "--key", "k", "--master", "yarn"]
    command = [sys.executable, "-c", PROGRAM, *words]
    env = {**os.environ, "HADOOP_CONF_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as program:
        assert program.stderr is not None
        too_long = threading.Timer(60, program.kill)
        too_long.start()
        said = program.stderr.readline()
        too_long.cancel()
        program.kill()
    assert said == (
        "yarn: Spark has not started for 1 s; does the cluster answer, and has its queue room? Still waiting\n"
    )
