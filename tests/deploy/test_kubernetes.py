"""deploy/kubernetes/, by Kubernetes' own schemas, and how the objects fit together."""

from typing import Any

import kubernetes_validate
import pytest

from tests.deploy.deployed import (
    DEPLOY,
    GIB,
    KUBERNETES,
    MIB,
    containers,
    kustomize,
    manifests,
    memory_of,
    parse_command,
    pod_spec,
    rendered,
    settings_of,
)

VERSIONS = ("1.30", "1.37")  # the first that has all that is asked for, and the newest with a schema
PODS = [name for name in manifests() if name.startswith(("Deployment/", "CronJob/"))]
UNITS = {"Mi": MIB, "Gi": GIB}


def bytes_of(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def deployment() -> dict[str, Any]:
    return manifests()["Deployment/gnomon"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", manifests())
def test_each_object_is_one_of_that_version(name: str, version: str) -> None:
    kubernetes_validate.validate(manifests()[name], version, strict=True)


def test_a_misspelt_field_is_refused() -> None:
    wrong = deployment()
    wrong["spec"]["replicaz"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_examples_of_secrets_are_not_applied_with_the_folder() -> None:
    for path in KUBERNETES.iterdir():
        assert ("kind: Secret" in path.read_text()) == (path.suffix == ".example")


@pytest.mark.parametrize("name", PODS)
def test_pods_run_confined(name: str) -> None:
    spec = pod_spec(manifests()[name])
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in containers(manifests()[name]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("name", ["CronJob/gnomon-build", "CronJob/gnomon-tidy"])
def test_no_job_runs_beside_itself(name: str) -> None:
    assert manifests()[name]["spec"]["concurrencyPolicy"] == "Forbid"


def test_jobs_keep_the_index_that_is_served() -> None:
    (served,) = settings_of(manifests()["ConfigMap/gnomon"]["data"]["gnomon.toml"]).indexes
    index = served.partition("=")[2]
    jobs = [one for name in PODS if name.startswith("CronJob/") for one in containers(manifests()[name])]
    assert [index in one["args"] for one in jobs] == [True] * 3


def test_the_service_has_the_time_and_the_memory_that_its_settings_need() -> None:
    settings = settings_of(manifests()["ConfigMap/gnomon"]["data"]["gnomon.toml"])
    spec = pod_spec(deployment())
    (container,) = spec["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause + settings.shutdown_seconds
    assert memory_of(settings) < bytes_of(container["resources"]["limits"]["memory"])
    assert container["ports"] == [{"name": "http", "containerPort": settings.port}]
    assert settings.host == "0.0.0.0"


def test_what_the_settings_name_is_mounted_from_objects_that_are_here() -> None:
    settings = settings_of(manifests()["ConfigMap/gnomon"]["data"]["gnomon.toml"])
    spec = pod_spec(deployment())
    (container,) = spec["containers"]
    folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    secret = manifests()[f"Secret/{volumes['tokens']['secret']['secretName']}"]
    assert settings.tokens_file == f"{folders['tokens']}/{next(iter(secret['stringData']))}"
    assert f"ConfigMap/{volumes['config']['configMap']['name']}" in manifests()
    assert container["args"] == ["--config", folders["config"]]
    for one in [container, *(c for name in PODS for c in containers(manifests()[name]))]:
        assert all(f"Secret/{ref['secretRef']['name']}" in manifests() for ref in one["envFrom"])


def test_selectors_find_the_pods_of_the_service_and_no_others() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment()["spec"]["selector"]["matchLabels"],
        manifests()["Service/gnomon"]["spec"]["selector"],
        manifests()["PodDisruptionBudget/gnomon"]["spec"]["selector"]["matchLabels"],
        manifests()["NetworkPolicy/gnomon"]["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        for name in PODS:
            if name.startswith("CronJob/"):
                job = manifests()[name]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
                assert not selector.items() <= job.items()


def test_nodes_can_be_emptied_while_the_service_answers() -> None:
    assert deployment()["spec"]["replicas"] > manifests()["PodDisruptionBudget/gnomon"]["spec"]["maxUnavailable"]
    assert deployment()["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_a_store_that_is_down_kills_no_pod() -> None:
    (container,) = pod_spec(deployment())["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


@pytest.fixture(scope="module")
def program() -> list[str]:
    return kustomize() or pytest.skip("neither kustomize nor a kubectl with it (1.24 or later) on the PATH")


@pytest.mark.process
def test_the_base_is_the_objects_of_the_folder_but_the_examples(program: list[str]) -> None:
    examples = {name: one for name, one in manifests().items() if name.startswith("Secret/")}
    assert rendered(program, KUBERNETES) == {name: one for name, one in manifests().items() if name not in examples}


@pytest.mark.process
def test_the_example_of_a_change_is_one_of_that_version_and_changes_what_it_says(program: list[str]) -> None:
    objects = rendered(program, DEPLOY / "kubernetes-example")
    for one in objects.values():
        assert one["metadata"]["namespace"] == "lake"
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    base = {name for name in manifests() if not name.startswith("Secret/")}
    assert set(objects) == base | {"Secret/gnomon-tokens", "Ingress/gnomon"}
    assert objects["Deployment/gnomon"]["spec"]["replicas"] == 3
    settings = settings_of(objects["ConfigMap/gnomon"]["data"]["gnomon.toml"])
    (container,) = containers(objects["Deployment/gnomon"])
    assert memory_of(settings) < bytes_of(container["resources"]["limits"]["memory"])
    index = settings.indexes[0].partition("=")[2]
    for name in PODS:
        for one in containers(objects[name]):
            assert one["image"].startswith("images.example.org/gnomon-")
            if name.startswith("CronJob/"):
                assert index in one["args"]
                parse_command(one["args"])
