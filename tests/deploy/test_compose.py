"""deploy/compose.yaml, by the schema of compose files, and what it names."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.deploy.deployed import DEPLOY, GIB, compose, memory_of, settings_of

FILE = DEPLOY / "compose.yaml"


@pytest.mark.process
def test_it_is_a_compose_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_files_it_mounts_are_there() -> None:
    for one in compose()["services"].values():
        for volume in one["volumes"]:
            place = volume.split(":")[0]
            if place.startswith("./") and not volume.startswith("${"):
                assert (DEPLOY / place).is_file(), place


def test_no_container_of_ours_may_write_its_image_or_gain_rights() -> None:
    for name in ("service", "build"):
        one = compose()["services"][name]
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]


def test_ports_are_open_to_this_machine_alone() -> None:
    for one in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))


def test_the_service_has_the_time_and_the_memory_that_its_settings_need() -> None:
    service, settings = compose()["services"]["service"], settings_of((DEPLOY / "gnomon.toml").read_text())
    assert service["mem_limit"] == "2g"
    assert memory_of(settings) < 2 * GIB
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.shutdown_seconds
    assert service["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]


def test_source_and_index_have_the_same_path_in_both() -> None:
    def places(name: str) -> set[str]:
        folders = re.findall(
            r"\$\{(?:LAKE|INDEXES)[^}]*\}:([^:\n]+)", "\n".join(compose()["services"][name]["volumes"])
        )
        return set(folders)

    assert places("service") == places("build") == {"/lake", "/indexes"}
    (index,) = settings_of((DEPLOY / "gnomon.toml").read_text()).indexes
    assert index.partition("=")[2] == compose()["services"]["build"]["command"][2]


def test_prometheus_asks_the_service_and_reads_the_rules() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = prometheus["scrape_configs"]
    port = settings_of((DEPLOY / "gnomon.toml").read_text()).port
    assert job["static_configs"] == [{"targets": [f"service:{port}"]}]
    assert prometheus["rule_files"] == ["prometheus-alerts.yml"]
