"""How the Java processes of tests run. They live for minutes and see each query a few times: what Java's second
compiler and its parallel collector do for a server costs more here than it gives, and takes the other tests' cores."""

import os

OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# What Spark's launcher gives the driver's Java, and itself.
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")


def start_quickly() -> None:
    """Give the options to each Spark that this process, or one it starts, will start; what is set already stays."""
    for name in VARIABLES:
        os.environ.setdefault(name, " ".join(OPTIONS))
