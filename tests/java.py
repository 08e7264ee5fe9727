"""How the Java processes of tests run.

They live for minutes and see each query a few times. Java's second compiler and its parallel collector cost more there
than they give, and take the cores of other tests. Spark's 20,000 classes are read from a class archive (Java's AppCDS),
which `train` writes once for each installation of Java and pyspark: a session starts in half the time."""

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.stores.process import locked

OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:MetaspaceSize=256m")
# What Spark's launcher gives the driver's Java, and itself.
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
DRIVER = VARIABLES[0]
QUIET = "-Xlog:disable"  # Java would print a warning on stdout for another class path than that of the archive
TRAINING_SECONDS = 300

# What most tests do: a session with a metastore in memory, SQL, a Parquet file and Python workers.
TRAINING = """
import sys
from gnomon.indexer.spark import local_session
conf = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": sys.argv[1] + "/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
}
session = local_session("local[2]", conf)
session.sparkContext._jvm.System.setProperty("derby.stream.error.file", sys.argv[1] + "/derby.log")
session.range(1000).selectExpr("id", "cast(id as string) as text").write.parquet(sys.argv[1] + "/rows")
rows = session.read.parquet(sys.argv[1] + "/rows").repartition(2, "text").sortWithinPartitions("text")
rows = rows.mapInArrow(lambda batches: batches, rows.schema)
rows.join(session.range(10), "id").groupBy("id").count().collect()
session.sql("CREATE DATABASE trained")
session.sql("DROP DATABASE trained")
session.stop()
"""


def start_quickly() -> None:
    """Give the options to each Spark that this process, or one it starts, will start; what is set already stays."""
    archive = _folder_name(), "spark.jsa"
    with locked(archive[0]) as folder:
        options = [*OPTIONS, QUIET, f"-XX:SharedArchiveFile={folder / archive[1]}"]
    os.environ.setdefault(DRIVER, " ".join(options))
    os.environ.setdefault(VARIABLES[1], " ".join(OPTIONS))


def train() -> None:
    """Write the class archive where it is not there. Without it the tests run as well, and slower."""
    with locked(_folder_name()) as folder:
        if (folder / "tried").exists():
            return
        work, new = folder / "work", folder / "new.jsa"
        work.mkdir(exist_ok=True)
        options = " ".join([*OPTIONS, QUIET, f"-XX:ArchiveClassesAtExit={new}"])
        command = [sys.executable, "-c", TRAINING, str(work)]
        if _ends_in_time(command, {**os.environ, DRIVER: options}) and new.exists():
            new.rename(folder / "spark.jsa")
        shutil.rmtree(work, ignore_errors=True)
        (folder / "tried").touch()


def _ends_in_time(command: list[str], env: dict[str, str]) -> bool:
    """Run a program, and end it, with the Java that it started, where it takes too long, as on a machine under load."""
    program = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        program.wait(TRAINING_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        return False
    return True


def _folder_name() -> str:
    """The name of the archive's folder, of this Java and this pyspark: Java refuses the archive of another."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ.get('PATH', '')}")
    pyspark = importlib.util.find_spec("pyspark")
    known = [str(Path(java).resolve()) if java else "", str(pyspark.origin) if pyspark else "", sys.version]
    return f"classes-{hashlib.sha256(repr(known).encode()).hexdigest()[:12]}"
