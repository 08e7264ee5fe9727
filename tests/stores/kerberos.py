"""HDFS that Kerberos protects: a real KDC (MIT's, of Debian's krb5-kdc), and the mini cluster with keytabs of it."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.java import OPTIONS
from tests.stores.hdfs import MAIN, START_SECONDS, WAIT, hadoop_jars
from tests.stores.process import free_port, server, unavailable

REALM, USER = "GNOMON.TEST", "loader"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
SECONDS = 120
# Of Debian's Java: the module of Kerberos for HTTP is there, and Hadoop reaches into it.
OPENED = ("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",)


@dataclass(frozen=True)
class SecureHdfs:
    """A cluster that runs: `address` is the namenode's for WebHDFS, `variables` lead Kerberos to the KDC."""

    address: str
    variables: Mapping[str, str]
    folder: Path
    classes: str

    def fetch_token(self, path: Path) -> None:
        """Log in, and let Hadoop's own tool write a delegation token, as `hdfs fetchdt`."""
        environment = {**os.environ, **self.variables, "KRB5CCNAME": f"FILE:{self.folder}/tickets"}
        login = ["kinit", "-k", "-t", str(self.folder / f"{USER}.keytab"), f"{USER}@{REALM}"]
        subprocess.run(login, env=environment, check=True, timeout=SECONDS)
        java = ["java", *OPTIONS, *OPENED, f"-Djava.security.krb5.conf={self.variables['KRB5_CONFIG']}"]
        conf = self.folder / "conf"
        main = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
        tool = [*java, "-cp", f"{conf}:{self.classes}", main, "--webservice", self.address, "--renewer", USER]
        command = [*tool, str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert path.exists(), done.stdout[-3000:] + done.stderr[-3000:]


@contextmanager
def secure_hdfs(folder: Path) -> Iterator[SecureHdfs]:
    """A KDC and a cluster of it, formatted. Skips where they cannot be had."""
    missing = [program for program in PROGRAMS if _found(program) is None]
    pyspark = importlib.util.find_spec("pyspark")
    if missing or shutil.which("java") is None or pyspark is None or pyspark.origin is None:
        unavailable(f"Kerberos: not found: {', '.join(missing) or 'java or pyspark'} (Debian: krb5-kdc, krb5-user)")
    spark_jars = Path(pyspark.origin).parent / "jars"
    classes = f"{hadoop_jars(spark_jars)}/*:{spark_jars}/*"
    with _kdc(folder) as variables:
        port = free_port()
        address = f"http://localhost:{port}"
        settings = _settings(folder)
        (folder / "conf").mkdir()
        (folder / "secret").write_text("of the test")
        (folder / "conf" / "core-site.xml").write_text(_xml(settings))
        java = ["java", *OPTIONS, *OPENED, f"-Djava.security.krb5.conf={variables['KRB5_CONFIG']}", "-Xmx512m"]
        place = [f"-Dtest.build.data={folder}", f"-Dhdfs.minidfs.basedir={folder}/hdfs"]
        options = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
        command = [*java, *place, "-cp", f"{folder}/conf:{classes}", MAIN, "-format", "-httpport", str(port), *options]
        with server(command, folder / "hdfs.log", lambda: _is_open(port), START_SECONDS, variables):
            yield SecureHdfs(address, variables, folder, classes)


@contextmanager
def _kdc(folder: Path) -> Iterator[dict[str, str]]:
    """A KDC with principals of the cluster and of a user, each with its keytab."""
    port = free_port()
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        f" rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        f"[domain_realm]\n localhost = {REALM}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
        f"  kdc_ports = {port}\n  kdc_tcp_ports = {port}\n  kdc_listen = 127.0.0.1:{port}\n"
        f"  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n"
    )
    variables = {"KRB5_CONFIG": f"{folder}/krb5.conf", "KRB5_KDC_PROFILE": f"{folder}/kdc.conf"}
    environment = {**os.environ, **variables}

    def admin(*words: str) -> None:
        subprocess.run(words, env=environment, check=True, capture_output=True, timeout=SECONDS)

    admin(str(_found("kdb5_util")), "create", "-s", "-r", REALM, "-P", "of the test")
    local = str(_found("kadmin.local"))
    for principal, keytab in (("hdfs/localhost", "hdfs"), ("HTTP/localhost", "http"), (USER, USER)):
        admin(local, "-r", REALM, "-q", f"addprinc -randkey {principal}@{REALM}")
        admin(local, "-r", REALM, "-q", f"ktadd -k {folder}/{keytab}.keytab {principal}@{REALM}")
    command = [str(_found("krb5kdc")), "-n", "-r", REALM]
    with server(command, folder / "kdc.log", lambda: _is_open(port), START_SECONDS, variables):
        yield variables


def _settings(folder: Path) -> dict[str, str]:
    service, web = f"hdfs/localhost@{REALM}", f"HTTP/localhost@{REALM}"
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "dfs.namenode.kerberos.principal": service,
        "dfs.namenode.keytab.file": f"{folder}/hdfs.keytab",
        "dfs.datanode.kerberos.principal": service,
        "dfs.datanode.keytab.file": f"{folder}/hdfs.keytab",
        "dfs.web.authentication.kerberos.principal": web,
        "dfs.web.authentication.kerberos.keytab": f"{folder}/http.keytab",
        "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": web,
        "hadoop.http.authentication.kerberos.keytab": f"{folder}/http.keytab",
        "hadoop.http.authentication.signature.secret.file": f"{folder}/secret",
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",  # the datanode's ports are above 1023, and have no TLS
        "dfs.permissions.enabled": "false",
        "dfs.namenode.delegation.token.always-use": "true",
        WAIT: "10",
    }


def _xml(settings: Mapping[str, str]) -> str:
    found = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    return f"<?xml version='1.0'?><configuration>{found}</configuration>"


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
