"""The services of a cluster, each on its machine: HDFS, YARN and Spark's standalone cluster, with the jars that pyspark
has and those of Hadoop's mini cluster."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark

from tests.java import OPTIONS
from tests.machines.network import Machine
from tests.stores.hdfs import hadoop_jars

HEAD = "head"  # the machine of the namenode, the resource manager and Spark's master
WORKERS = ("one", "two", "three")
HDFS, SPARK = f"hdfs://{HEAD}:8020", f"spark://{HEAD}:7077"
CONF = "/srv/conf"  # on each machine
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
START_SECONDS = 240
GET = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())"
SPARK_HOME = Path(pyspark.__file__).parent
WORKER_MEMORY_MB = 1200
# Seconds until a machine that sends nothing counts as lost. By default Spark waits for two minutes, YARN for ten; it
# counts an application, too, that takes so long to start.
LOST_SECONDS, YARN_LOST_SECONDS = 20, 60
SETTINGS = {
    "core-site.xml": {"fs.defaultFS": HDFS, "hadoop.tmp.dir": "/srv/hadoop"},
    "hdfs-site.xml": {
        "dfs.replication": len(WORKERS),
        "dfs.namenode.name.dir": "/srv/name",
        "dfs.namenode.rpc-bind-host": "0.0.0.0",
        "dfs.datanode.data.dir": "/srv/data",
        "dfs.client.use.datanode.hostname": "true",
    },
    "yarn-site.xml": {
        "yarn.resourcemanager.hostname": HEAD,
        "yarn.resourcemanager.am.max-attempts": 4,
        "yarn.nm.liveness-monitor.expiry-interval-ms": YARN_LOST_SECONDS * 1000,
        "yarn.am.liveness-monitor.expiry-interval-ms": YARN_LOST_SECONDS * 1000,
        "yarn.nodemanager.resource.memory-mb": 3072,
        "yarn.nodemanager.resource.cpu-vcores": 2,
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.local-dirs": "/srv/yarn",
        "yarn.nodemanager.log-dirs": "/srv/log/containers",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.5,
        "yarn.scheduler.minimum-allocation-mb": 128,
    },
    "capacity-scheduler.xml": {
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": 100,
        "yarn.scheduler.capacity.maximum-am-resource-percent": 0.5,
    },
}


def configure(machine: Machine) -> None:
    """Write the settings of Hadoop on a machine."""
    folder = machine.folder / "conf"
    folder.mkdir()
    for name, settings in SETTINGS.items():
        properties = [
            f"<property><name>{key}</name><value>{escape(str(value))}</value></property>"
            for key, value in settings.items()
        ]
        (folder / name).write_text(f"<configuration>{''.join(properties)}</configuration>\n")


def java(name: str, *arguments: str, heap_mb: int = 256) -> list[str]:
    """The command of a service of Hadoop or Spark, by the name of its class."""
    jars = SPARK_HOME / "jars"
    classes = f"{CONF}:{hadoop_jars(jars)}/*:{jars}/*"
    return ["java", *OPTIONS, f"-Xmx{heap_mb}m", "-cp", classes, name, *arguments]


def start_hdfs(head: Machine, workers: Sequence[Machine]) -> None:
    """Start a namenode, and a datanode on each worker; return when all have reported."""
    name = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    done = head.run(*java(name, "-format", "-nonInteractive"), seconds=START_SECONDS)
    assert done.returncode == 0, done.stderr
    head.start("namenode", *java(name))
    for worker in workers:
        worker.start("datanode", *java(DATANODE))
    beans = f"http://{HEAD}:9870/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    wait_for(head, beans, lambda found: found["beans"][0]["NumLiveDataNodes"] == len(workers))
    namespace = ["org.apache.hadoop.fs.FsShell", "-chmod", "777", "/"]
    done = head.run(*java(*namespace), seconds=START_SECONDS)
    assert done.returncode == 0, done.stderr


def start_yarn(head: Machine, workers: Sequence[Machine]) -> None:
    """Start a resource manager, and a node manager on each worker; return when all have reported."""
    head.start("resourcemanager", *java("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"))
    for worker in workers:
        worker.start("nodemanager", *java(NODE_MANAGER))
    wait_until_free(head, "yarn", len(workers))


def start_spark(head: Machine, workers: Sequence[Machine]) -> None:
    """Start Spark's master, and a worker of one core on each of the others; return when all have reported."""
    words = java("org.apache.spark.deploy.master.Master", "--host", HEAD, "--port", "7077", "--webui-port", "8080")
    head.start("master", words[0], f"-Dspark.worker.timeout={LOST_SECONDS}", *words[1:])
    for worker in workers:
        worker.start("worker", *_spark_worker(worker))
    wait_until_free(head, "standalone", len(workers))


def start_worker(worker: Machine, kind: str) -> None:
    """Start the services of a worker that joins a cluster."""
    worker.start("datanode", *java(DATANODE))
    worker.start("worker", *(_spark_worker(worker) if kind == "standalone" else java(NODE_MANAGER)))


def _spark_worker(worker: Machine) -> list[str]:
    size = ["--cores", "1", "--memory", f"{WORKER_MEMORY_MB}m", "--host", worker.name, "--work-dir", "/srv/work"]
    return java("org.apache.spark.deploy.worker.Worker", *size, SPARK)


def wait_until_free(head: Machine, kind: str, workers: int) -> None:
    """Wait until a cluster has a number of workers, and no application runs."""
    if kind == "standalone":
        at, place = f"http://{HEAD}:8080/json/", None
        names = ("aliveworkers", "activeapps")
    else:
        at, place = f"http://{HEAD}:8088/ws/v1/cluster/metrics", "clusterMetrics"
        names = ("activeNodes", "appsRunning")

    def is_free(found: Any) -> bool:
        numbers = [found[place][name] if place else found[name] for name in names]
        return bool(numbers[0] == workers and not numbers[1])

    wait_for(head, at, is_free)


def wait_for(machine: Machine, url: str, is_so: Callable[[Any], bool]) -> None:
    """Wait until the JSON at an address of the network is as wanted."""
    end = time.monotonic() + START_SECONDS
    said = ""
    while time.monotonic() < end:
        done = machine.run(sys.executable, "-c", GET, url, seconds=30)
        try:
            if is_so(json.loads(done.stdout)):
                return
            said = done.stdout
        except (ValueError, LookupError):
            said = done.stdout or done.stderr
        time.sleep(0.2)
    raise AssertionError(f"{url}: not ready in {START_SECONDS} s; it said {said[-2000:]}")
