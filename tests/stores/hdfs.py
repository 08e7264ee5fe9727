"""HDFS for tests: a real namenode and datanode, Hadoop's mini cluster in one Java process.

pyspark brings Hadoop's client; what is missing Spark itself fetches, as it does for a user's `--packages`, and it is
kept.
"""

import getpass
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.java import OPTIONS
from tests.stores.process import Store, free_port, locked, server, unavailable

# The mini cluster's own code asserts with the first; YARN's resource manager encrypts with the others.
ALSO = (
    "org.junit.jupiter:junit-jupiter-api:5.11.4,"
    "org.bouncycastle:bcprov-jdk18on:1.82,org.bouncycastle:bcpkix-jdk18on:1.82"
)
OF_PYSPARK = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
# Milliseconds until a writer asks again whether its block has been reported: it asks too early, and 400 is a long time.
WAIT = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
FETCH_SECONDS = 300
START_SECONDS = 120
OPENS = "--add-opens=java.base/java.lang=ALL-UNNAMED"  # the web server of Hadoop 3.3, which Spark 3.5 brings


@contextmanager
def hdfs_cluster(folder: Path) -> Iterator[Store]:
    """A cluster, formatted. Skips where it cannot be had."""
    java = shutil.which("java")
    if java is None:
        unavailable("HDFS: there is no java; it runs the mini cluster")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        unavailable("HDFS: there is no pyspark; it has the jars of Hadoop's client")
    spark_jars = Path(pyspark.origin).parent / "jars"
    try:
        jars = hadoop_jars(spark_jars)
    except OSError as error:
        unavailable(f"HDFS: the mini cluster cannot be downloaded: {error}")
    port = free_port()
    place = [f"-Dtest.build.data={folder}", f"-Dhdfs.minidfs.basedir={folder}"]
    settings = ["-D", "dfs.ls.limit=100", "-D", f"{WAIT}=10"]
    arguments = ["-format", "-httpport", str(port), *settings]
    command = [java, *OPTIONS, OPENS, "-Xmx512m", *place, "-cp", f"{jars}/*:{spark_jars}/*", MAIN, *arguments]
    address = f"http://127.0.0.1:{port}"
    with server(command, folder / "log", lambda: _is_up(address), START_SECONDS):
        yield Store("hdfs://localhost", {"GNOMON_WEBHDFS": address, "HADOOP_USER_NAME": getpass.getuser()})


def hadoop_jars(spark_jars: Path) -> Path:
    """A folder with what pyspark lacks of the mini cluster, fetched at the first call of all. OSError if that fails."""
    [client] = spark_jars.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    with locked(f"hadoop-{version}") as folder:
        packages, fetched = f"org.apache.hadoop:hadoop-client-minicluster:{version},{ALSO}", folder / "fetched"
        if not fetched.exists() or fetched.read_text() != packages:
            _fetch(spark_jars, packages, folder)
            fetched.write_text(packages)
        return folder / "jars"


def _fetch(spark_jars: Path, packages: str, folder: Path) -> None:
    """Let Spark resolve packages into `folder`/jars; it checks their checksums. OSError where it cannot."""
    nothing = folder / "nothing.py"
    nothing.write_text("")
    submit = ["java", *OPTIONS, "-cp", f"{spark_jars}/*", "org.apache.spark.deploy.SparkSubmit", "--master", "local[1]"]
    options = ["--packages", packages, "--exclude-packages", OF_PYSPARK, "--conf", f"spark.jars.ivy={folder}"]
    command = [*submit, *options, str(nothing)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    try:
        subprocess.run(command, env=environment, check=True, timeout=FETCH_SECONDS, capture_output=True, text=True)
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise OSError(said[-1] if said else str(error)) from None


def _is_up(address: str) -> bool:
    """Whether the cluster takes a file: the namenode answers before it has a datanode."""
    create = f"{address}/webhdfs/v1/up?op=CREATE&overwrite=true&noredirect=true&user.name={getpass.getuser()}"
    try:
        with urllib.request.urlopen(urllib.request.Request(create, method="PUT"), timeout=5) as response:
            datanode = json.load(response)["Location"]
        with urllib.request.urlopen(urllib.request.Request(datanode, b"up", method="PUT"), timeout=10):
            return True
    except OSError:
        return False
