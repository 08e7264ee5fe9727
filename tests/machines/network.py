"""Machines for tests: each has its own network interface, host name, processes and folders, by Linux namespaces.

Machines share the host's system, Java and Python, and a switch. Each one's `/srv` and `/tmp` are its own. Only machines
that have the project see it: the Python of the others has all packages but Gnomon.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.stores.process import unavailable

ROOT = Path(__file__).parents[2]
SUBNET = "10.83.0"
END_SECONDS = 30
SPACES = ["net", "uts", "ipc", "mount", "pid"]
# The first process of a machine makes its view of the file system, and stays.
FIRST_PROCESS = """
mount --make-rprivate /
mount -t proc none /proc
mount --bind '{srv}' /srv
mount --bind '{hosts}' /etc/hosts
mount --bind /dev/null /etc/resolv.conf
hostname {name}
ip link set lo up
{hide}
mount --bind /srv/tmp /tmp
echo ready
exec sleep infinity
"""
# The first process of the switch makes it, and stays.
SWITCH = """
ip link add switch type bridge
ip link set switch up
echo ready
exec sleep infinity
"""
HIDE_PROJECT = """
mount --bind '{root}/.venv' /mnt
mount -t tmpfs none '{root}'
mkdir '{root}/.venv'
mount --bind /mnt '{root}/.venv'
umount /mnt
"""


class _Space:
    """A process that keeps namespaces. All processes in them end with it."""

    def __init__(self, spaces: Sequence[str], script: str) -> None:
        options = [f"--{space}" for space in spaces]
        ends_with_tests = ["setpriv", "--pdeathsig", "KILL"]
        command = [*ends_with_tests, "unshare", *options, "--fork", "--kill-child", "bash", "-ec", script]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != "ready\n":
            self._holder.wait(END_SECONDS)
            unavailable(f"machines need root and namespaces: {said.strip()}")
        [children] = Path(f"/proc/{self._holder.pid}/task").glob("*/children")
        self.first = int(children.read_text())
        self._enter = ["nsenter", "--target", str(self.first), *options]

    def enter(self, *command: str) -> list[str]:
        """A command as a command of the host that runs it there."""
        return [*self._enter, *command]

    def set_up(self, *command: str) -> None:
        subprocess.run(self.enter(*command), check=True)

    def end(self) -> None:
        """End all processes at once."""
        if self._holder.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            self._holder.wait(END_SECONDS)
        assert self._holder.stdout is not None
        self._holder.stdout.close()


class Machine:
    """One machine. `variables` is the environment of its programs; `folder` is its `/srv`."""

    def __init__(self, name: str, folder: Path, space: _Space, switch: _Space, variables: Mapping[str, str]) -> None:
        self.name, self.folder, self.variables = name, folder, dict(variables)
        self._space, self._switch = space, switch
        self._programs: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str, seconds: float) -> "subprocess.CompletedProcess[str]":
        """Run a program in the project's folder, until it ends."""
        return subprocess.run(
            self._command(ROOT, command),
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def start(self, log: str, *command: str, folder: Path = Path("/srv")) -> "subprocess.Popen[bytes]":
        """Start a program, which ends with the machine at the latest. Its output is in `log/<log>` of the folder."""
        (self.folder / "log").mkdir(exist_ok=True)
        with (self.folder / "log" / log).open("ab") as out:
            words = self._command(folder, command)
            program = subprocess.Popen(words, env=self.variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._programs.append(program)
        return program

    def _command(self, folder: Path, command: Sequence[str]) -> list[str]:
        return self._space.enter("env", "-C", str(folder), *command)

    def cut_off(self) -> None:
        """Take the machine from the network, as if its power failed: nobody gets a last packet."""
        self._switch.set_up("ip", "link", "set", self.name, "down")

    def end(self) -> None:
        """End all its programs at once; on a machine in the network, the system closes their connections."""
        self._space.end()
        for program in self._programs:
            program.wait(END_SECONDS)


@contextmanager
def network(folder: Path, names: Sequence[str], variables: Mapping[str, str]) -> Iterator["Network"]:
    """A switch, at which machines with these names can be started."""
    made = Network(folder, names, variables)
    try:
        yield made
    finally:
        made.end()


class Network:
    """A switch and the machines at it."""

    def __init__(self, folder: Path, names: Sequence[str], variables: Mapping[str, str]) -> None:
        self._folder, self._variables = folder, variables
        self._addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 1)}
        hosts = [f"{address} {name}" for name, address in self._addresses.items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        self._machines: list[Machine] = []
        self._switch = _Space(["net"], SWITCH)

    def start(self, name: str, has_project: bool = False) -> Machine:
        """Start a machine; after its end, another one with the name and an empty disk can be started."""
        disk = self._folder / f"{name}-{len(self._machines)}"
        (disk / "tmp").mkdir(parents=True)
        hide = "" if has_project else HIDE_PROJECT.format(root=ROOT)
        words = {"srv": disk, "hosts": self._folder / "hosts", "name": name, "hide": hide}
        space = _Space(SPACES, FIRST_PROCESS.format(**words))
        machine = Machine(name, disk, space, self._switch, self._variables)
        self._machines.append(machine)
        # The system removes the port of a dead machine some time after its end.
        subprocess.run(self._switch.enter("ip", "link", "delete", name), capture_output=True, check=False)
        link = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(space.first)]
        self._switch.set_up(*link)
        self._switch.set_up("ip", "link", "set", name, "master", "switch", "up")
        space.set_up("ip", "address", "add", f"{self._addresses[name]}/24", "dev", "eth0")
        space.set_up("ip", "link", "set", "eth0", "up")
        return machine

    def end(self) -> None:
        """End all machines and the switch."""
        for machine in self._machines:
            machine.end()
        self._switch.end()
