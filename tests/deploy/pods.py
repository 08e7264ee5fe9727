"""Pods of deploy/kubernetes/ in podman: the manifests say how their containers start, are probed and end.

Podman's own `kube play` (4.3.1) panics at the volume of a Secret without the field `optional`, and probes with curl,
which the image does not have."""

import base64
import http.client
import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.deployed import KUBERNETES, containers, kustomize, pod_spec, rendered
from tests.deploy.podman import Container, get, podman
from tests.stores.go import go_program
from tests.stores.process import answers, free_port, server

KUSTOMIZE = ("sigs.k8s.io/kustomize/kustomize/v5", "v5.7.1")
UNITS = {"Mi": 1024**2, "Gi": 1024**3}
CONFINED = {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
POD_SECURITY = {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"}


def bytes_of(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


class Volumes:
    """The volumes of a pod as folders, with the owner and the modes that the kubelet gives them."""

    def __init__(self, spec: dict[str, Any], objects: dict[str, Any], folder: Path) -> None:
        self._group = spec["securityContext"]["fsGroup"]
        self.folders: dict[str, Path] = {}
        self.limits: dict[str, int] = {}
        for volume in spec["volumes"]:
            self.folders[volume["name"]] = place = folder / volume["name"]
            place.mkdir(parents=True)
            if "emptyDir" in volume:
                self._own(place, 0o2777)
                self.limits[volume["name"]] = bytes_of(volume["emptyDir"]["sizeLimit"])
            elif "configMap" in volume:
                self._fill(place, objects[f"ConfigMap/{volume['configMap']['name']}"]["data"], 0o644)
            else:
                secret = volume["secret"]
                self._fill(place, data_of(objects[f"Secret/{secret['secretName']}"]), secret["defaultMode"])

    def _fill(self, place: Path, content: dict[str, str], mode: int) -> None:
        for name, text in content.items():
            (place / name).write_text(text)
            self._own(place / name, mode)
        self._own(place, 0o2755)

    def _own(self, path: Path, mode: int) -> None:
        os.chown(path, 0, self._group)
        path.chmod(mode)

    def words(self, mounts: list[dict[str, Any]]) -> list[str]:
        words = []
        for mount in mounts:
            source = self.folders[mount["name"]] / mount.get("subPath", "")
            words += ["--volume", f"{source}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"]
        return words

    def used(self) -> dict[str, int]:
        """The bytes that lie in each emptyDir."""
        return {
            name: sum(path.lstat().st_size for path in self.folders[name].rglob("*") if path.is_file())
            for name in self.limits
        }


def data_of(secret: dict[str, Any]) -> dict[str, str]:
    encoded = {name: base64.b64decode(value).decode() for name, value in secret.get("data", {}).items()}
    return {**encoded, **secret.get("stringData", {})}


def container_words(
    spec: dict[str, Any], container: dict[str, Any], objects: dict[str, Any], volumes: Volumes
) -> list[str]:
    """What podman gets for a container of a pod: options, image, command."""
    user, security = spec["securityContext"], container["securityContext"]
    assert (set(user), set(security)) == (POD_SECURITY, CONFINED), "a field that podman does not get"
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    limit = str(bytes_of(container["resources"]["limits"]["memory"]))
    words = ["--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--group-add", str(user["fsGroup"])]
    words += ["--read-only", "--read-only-tmpfs=false", "--security-opt", "no-new-privileges"]
    words += [f"--cap-drop={one}" for one in security["capabilities"]["drop"]]
    words += ["--memory", limit, "--memory-swap", limit]
    for reference in container.get("envFrom", []):
        secret = objects.get(f"Secret/{reference['secretRef']['name']}")
        assert secret or reference["secretRef"]["optional"]
        for name, value in data_of(secret or {}).items():
            words += ["--env", f"{name}={value}"]
    for variable in container.get("env", []):
        words += ["--env", f"{variable['name']}={variable['value']}"]
    words += volumes.words(container["volumeMounts"])
    return [*words, container["image"], *container["args"]]


class Pod(Container):
    """A pod of a Deployment. The probes run in a thread as the kubelet runs them: `is_ready` is what they found, `ill`
    the probes for which a kubelet would start the container again."""

    def __init__(self, name: str, network: str, spec: dict[str, Any], objects: dict[str, Any], folder: Path) -> None:
        [self._container] = spec["containers"]
        self._grace = spec["terminationGracePeriodSeconds"]
        self.pause = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.volumes = Volumes(spec, objects, folder / name)
        self.is_ready, self.ready_after, self.ill = False, 0.0, []
        super().__init__(name, "--network", network, *container_words(spec, self._container, objects, self.volumes))
        self.ip = self.address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._probe_all)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._container["ports"][0]["containerPort"])

    def end(self) -> tuple[int, float]:
        """As the kubelet ends it: the preStop pause, SIGTERM, SIGKILL after the grace. Returns the exit code and how
        many seconds all took."""
        time.sleep(self.pause)
        self.end_probes()
        code, seconds = self.stop(self._grace - self.pause)
        return code, self.pause + seconds

    def end_probes(self) -> None:
        self._stop.set()
        self._thread.join()

    def remove(self) -> None:
        self.end_probes()
        super().remove()

    def _probe_all(self) -> None:
        failures: Counter[str] = Counter()
        due: Counter[str] = Counter()
        kinds = ["startup"]
        while not self._stop.wait(0.1):
            for kind in tuple(kinds):
                if time.monotonic() < due[kind]:
                    continue
                probe = self._container[f"{kind}Probe"]
                due[kind] = time.monotonic() + probe["periodSeconds"]  # type: ignore[assignment]
                succeeded = self._succeeds(probe)
                failures[kind] = 0 if succeeded else failures[kind] + 1
                failed = failures[kind] >= probe["failureThreshold"]
                if kind == "readiness":
                    self.is_ready = succeeded or (self.is_ready and not failed)
                    self.ready_after = self.ready_after or (time.monotonic() - self.begun if succeeded else 0.0)
                elif failed:
                    self.ill.append(kind)
                elif kind == "startup" and succeeded:
                    kinds = ["readiness", "liveness"]

    def _succeeds(self, probe: dict[str, Any]) -> bool:
        asked = probe["httpGet"]
        [port] = [one["containerPort"] for one in self._container["ports"] if one["name"] == asked["port"]]
        try:
            return 200 <= get(self.ip, port, asked["path"], probe["timeoutSeconds"])[0] < 400
        except (OSError, http.client.HTTPException):
            return False


class Cluster:
    """The objects of deploy/kubernetes/, and the network where their pods run; `name` is its name."""

    def __init__(self, name: str, folder: Path, token: str, objects: dict[str, Any]) -> None:
        self.name, self.folder, self.token, self.objects = name, folder, token, objects
        self._pods = 0

    def run_job(self, cronjob: str) -> None:
        """Run the containers of a CronJob's pod as a Job does: the first ones one after the other, then the others."""
        manifest = self.objects[f"CronJob/{cronjob}"]
        spec = pod_spec(manifest)
        volumes = Volumes(spec, self.objects, self.folder / cronjob)
        for one in containers(manifest):
            words = container_words(spec, one, self.objects, volumes)
            with Container(f"{self.name}-{one['name']}", "--network", self.name, *words) as container:
                code = container.wait(600)
                seconds = time.monotonic() - container.begun
                assert code == 0, container.logs()
            print(f"\n{cronjob}: `gnomon {' '.join(one['args'])}` in {seconds:.1f} s, left {volumes.used()} bytes")
            assert all(used < volumes.limits[name] for name, used in volumes.used().items())

    @contextmanager
    def pod(self) -> Iterator[Pod]:
        self._pods += 1
        spec = pod_spec(self.objects["Deployment/gnomon"])
        with Pod(f"{self.name}-{self._pods}", self.name, spec, self.objects, self.folder) as pod:
            yield pod


def objects_for(folder: Path, endpoint: str) -> tuple[dict[str, Any], str]:
    """The objects of deploy/kubernetes/, rendered with the images of this machine and both Secrets; and a token."""
    command = kustomize()
    if command is None:
        program = go_program(*KUSTOMIZE)
        if program is None:
            pytest.skip("neither kubectl nor kustomize on the PATH, and no Go to build one")
        command = [str(program), "build"]
    place = folder / "overlay"
    place.mkdir()
    words = ["run", "--rm", "--network", "none", "--entrypoint", "gnomon", "gnomon-service"]
    token, line = podman(*words, "token", "reports", "--index", "crawl").splitlines()
    (place / "tokens").write_text(line + "\n")
    (place / "store.env").write_text(
        f"AWS_REGION=eu-central-1\nAWS_ACCESS_KEY_ID=example\nAWS_SECRET_ACCESS_KEY=example\nAWS_ENDPOINT_URL={endpoint}\n"
    )
    registry = "registry.example.com"
    overlay = {
        "resources": [os.path.relpath(KUBERNETES, place)],
        "images": [
            {"name": f"{registry}/gnomon-{one}", "newName": f"localhost/gnomon-{one}", "newTag": "latest"}
            for one in ("service", "job")
        ],
        "secretGenerator": [
            {"name": "gnomon-tokens", "files": ["tokens"], "options": {"disableNameSuffixHash": True}},
            {"name": "gnomon-store", "envs": ["store.env"], "options": {"disableNameSuffixHash": True}},
        ],
    }
    (place / "kustomization.yaml").write_text(json.dumps(overlay))
    return rendered(command, place), token


class Front:
    """nginx on a port of this machine, in front of the pods that it was given last: the Service and an Ingress.

    It sends each request once: one that a pod does not answer is answered 502."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder, self._token, self.port = folder, token, free_port()

    def write(self, pods: list[Pod]) -> None:
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"{name}_temp_path {self._folder}/{name};\n" for name in names)
        pods_ = "".join(f"server {pod.ip}:{pod.port} max_fails=0;\n" for pod in pods)
        (self._folder / "nginx.conf").write_text(
            f"daemon off;\npid {self._folder}/pid;\nworker_processes 1;\nevents {{}}\n"
            f"http {{\naccess_log off;\nkeepalive_timeout 0;\n{folders}upstream service {{\n{pods_}keepalive 8;\n}}\n"
            f"server {{\nlisten 127.0.0.1:{self.port};\nlocation / {{\nproxy_pass http://service;\n"
            f'proxy_http_version 1.1;\nproxy_set_header Connection "";\nproxy_next_upstream off;\n'
            f'proxy_set_header Authorization "Bearer {self._token}";\n}}\n}}\n}}\n'
        )

    def send_to(self, pods: list[Pod]) -> None:
        self.write(pods)
        os.kill(int((self._folder / "pid").read_text()), signal.SIGHUP)

    @contextmanager
    def running(self, pods: list[Pod]) -> Iterator[None]:
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert program, "no nginx on the PATH; deploy/setup.sh --nginx installs it"
        self.write(pods)
        command = [program, "-p", str(self._folder), "-c", str(self._folder / "nginx.conf"), "-e", "stderr"]
        with server(command, self._folder / "nginx.log", lambda: answers(self.port), 30):
            yield
