"""A REST catalog of Iceberg for tests: Iceberg's own servlet (of the tests of iceberg-core) over its JDBC catalog, in
one Java process. Ivy, which pyspark brings, fetches the jars once (32 MB); they are kept."""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.java import OPTIONS
from tests.stores.process import locked, unavailable

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

VERSION = "1.10.0"  # newer versions have no jar of tests in Maven Central
MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="gnomon" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->master,runtime">
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{VERSION}">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.eclipse.jetty" name="jetty-servlet" rev="11.0.26"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.49.1.0"/>
  </dependencies>
</ivy-module>
"""
FETCH_SECONDS = 300
STOP_SECONDS = 20


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """The address of a catalog without namespaces, whose tables lie in `folder`. Skips where it cannot be had."""
    java = shutil.which("java")
    if java is None:
        unavailable("Iceberg's REST catalog: there is no java")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        unavailable("Iceberg's REST catalog: there is no pyspark; it brings Ivy and Hadoop's client")
    spark_jars = Path(pyspark.origin).parent / "jars"
    try:
        jars = _jars(java, spark_jars)
    except OSError as error:
        unavailable(f"Iceberg's REST catalog cannot be downloaded: {error}")
    from py4j.java_gateway import JavaGateway

    hadoop = spark_jars.glob("hadoop-client-*.jar")
    [py4j] = spark_jars.glob("py4j*.jar")
    with (folder / "log").open("w") as log:
        gateway = JavaGateway.launch_gateway(
            jarpath=str(py4j),
            classpath=":".join([f"{jars}/*", *map(str, hadoop)]),
            javaopts=[*OPTIONS, "-Xmx256m"],
            java_path=java,
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
        )
        try:
            yield _start(gateway, folder)
        finally:
            gateway.shutdown()
            process = gateway.java_process
            process.stdin.close()  # the process ends then
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(gateway: "JavaGateway", folder: Path) -> str:
    """Start the servlet on a free port of this machine alone. Returns its address."""
    java = gateway.jvm.java
    iceberg, jetty = gateway.jvm.org.apache.iceberg, gateway.jvm.org.eclipse.jetty
    properties = java.util.HashMap()
    properties["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
    properties["uri"] = f"jdbc:sqlite:{folder}/catalog.db"
    properties["jdbc.schema-version"] = "V1"
    properties["warehouse"] = f"file://{folder}/warehouse"
    hadoop = gateway.jvm.org.apache.hadoop.conf.Configuration()
    catalog = iceberg.CatalogUtil.buildIcebergCatalog("rest", properties, hadoop)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    context = jetty.servlet.ServletContextHandler(jetty.servlet.ServletContextHandler.NO_SESSIONS)
    context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(context)
    server.start()
    return f"http://127.0.0.1:{server.getURI().getPort()}"


def _jars(java: str, spark_jars: Path) -> Path:
    """A folder with the jars, fetched at the first call of all; Ivy checks their checksums. OSError where they cannot
    be fetched."""
    with locked(f"iceberg-rest-{VERSION}") as folder:
        jars = folder / "jars"
        if not (folder / "complete").exists():
            module = folder / "ivy.xml"
            module.write_text(MODULE)
            ivy = ":".join(str(path) for name in ("ivy", "commons-cli") for path in spark_jars.glob(f"{name}-*.jar"))
            names = f"{jars}/[artifact]-[revision](-[classifier]).[ext]"
            options = ["-ivy", str(module), "-cache", str(folder / "cache"), "-retrieve", names, "-warn"]
            command = [java, *OPTIONS, "-cp", ivy, "org.apache.ivy.Main", *options]
            try:
                subprocess.run(command, check=True, timeout=FETCH_SECONDS, capture_output=True, text=True)
            except subprocess.SubprocessError as error:
                said = str(getattr(error, "stderr", "") or error).strip().splitlines()
                raise OSError(said[-1] if said else str(error)) from None
            (folder / "complete").touch()
        return jars
