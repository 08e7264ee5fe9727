"""What all tests share: the profile of random tests, the fixtures of Spark and of stores, and the markers that say what
a test starts. `make quick` leaves out the tests that start anything."""

import gc
import multiprocessing.util
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.shadow.storage.retries import MINUTES
from tests import profiles

pytest_plugins = ["tests.seconds", "tests.spark_fixtures", "tests.stores.fixtures"]

# A test that asks for one of these fixtures bears the marker.
MARKERS = {
    "spark": {"spark"},
    "store": {"s3", "google", "azure", "hdfs", "remote_store", "iceberg_rest"},
    "browser": {"browser"},
}
BEYOND_S3 = {"google", "azure", "hdfs"}  # fixtures, and values of a parameter that names one
STARTERS = {*MARKERS, "process", "nightly"}  # their tests may start processes

TEMPORARY_ROOT = "PYTEST_DEBUG_TEMPROOT"  # pytest's variable: where it makes the folders of `tmp_path`
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 4 << 30  # bytes: a whole run takes 1 GB at most at a time

profiles.load()
gc.disable()  # until the tests are collected: objects of modules and tests live as long as the process


def pytest_configure() -> None:
    """Give up early where stores fail. Put the temporary folders into memory where there is enough of it: waiting for a
    disk is a tenth of the time of tests that commit. Let the clients of stores read the system's certificates from one
    file: each client reads them. A folder of hundreds of files takes 3 ms, half of the time of tests with stores."""
    os.environ.setdefault(MINUTES, "0")  # a job that meets a store which is down fails soon
    if bundle := ssl.get_default_verify_paths().cafile:
        os.environ["SSL_CERT_FILE"] = bundle
        os.environ.pop("SSL_CERT_DIR", None)
    if TEMPORARY_ROOT not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY:
        os.environ[TEMPORARY_ROOT] = str(MEMORY)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at what the collection made: a fifth of the time of short tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker, of_them in MARKERS.items():
            if fixtures & of_them:
                item.add_marker(marker)
        values = {str(value) for value in item.callspec.params.values()} if hasattr(item, "callspec") else set()
        if BEYOND_S3 & (fixtures | values):
            item.add_marker("nightly")


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        profiles.begin(collector.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    profiles.begin(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without a marker of `STARTERS` fails where it starts a process, so that `make quick` stays quick."""
    if any(mark.name in STARTERS for mark in item.iter_markers()):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((subprocess.Popen, "__init__"), (os, "fork"), (multiprocessing.util, "spawnv_passfds")):
            patch.setattr(owner, name, _refusing(item.nodeid, f"{owner.__name__}.{name}"))
        return (yield)


def _refusing(test: str, name: str) -> Callable[..., Any]:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError(f"{test} calls {name} and has none of the markers {', '.join(sorted(STARTERS))}")

    return refuse
