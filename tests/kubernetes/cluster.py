"""A real Kubernetes cluster of two nodes on this machine: brought up, broken, taken down.

    python -m tests.kubernetes.cluster up|down|clear|status|left
    python -m tests.kubernetes.cluster kill|start|cut|join|freeze|thaw NODE
    python -m tests.kubernetes.cluster stop-api|start-api

Does: puts the parts together in order. Never: runs beside a second one (names and addresses are
fixed), or leaves anything behind after ``down``. State: ``ROOT``, which says all that a later call
needs.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from tests.kubernetes import (
    cgroups,
    control_plane,
    helm,
    image,
    layout,
    machine,
    network,
    packages,
    server,
    services,
)
from tests.kubernetes import node as nodes
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.layout import NODES, ROOT, Node
from tests.kubernetes.running import ClusterError, Daemon, daemons, eventually, start_time

READY_S = 300.0
TURN_S = 3600.0
"""A test run waits so long for the end of another."""
PROGRAM = ROOT / "program"
"""Link to the server program: a later call starts the same."""
OWNER = ROOT / "owner"
"""Pid and start time of the process with which this cluster ends; no file: nobody's."""
UP = ROOT / "up"
"""There once everything was up."""


def prepare() -> None:
    """What takes minutes once: packages of the machine, programs, images; one process at a time.

    helm where Go can build it: only its own tests need it, and they say what is missing.
    """
    layout.cache().mkdir(parents=True, exist_ok=True)
    with (layout.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.prepare()
        server.provide()
        image.base()
        packages.folder()
        packages.folder(packages.CONTROLLER)
        if shutil.which("go") is not None:
            helm.provide()


def up(*, owned: bool = False) -> bool:
    """Bring the cluster up; False if it was up already. ``owned``: it ends with this process.

    What an earlier run left is taken down first. Raises ClusterError; then all is taken down again.
    """
    with _alone():
        _check_free()
        if is_up() and not _orphaned():
            return False
        machine.prepare()
        program, base = server.provide(), image.base()
        if left_behind():
            _down()
        try:
            _up(program, base, owned)
        except BaseException:
            if not os.environ.get("RESHAPE_KUBE_KEEP"):
                _down()
            raise
    return True


def down() -> None:
    """Nothing of it is left afterwards. May be repeated. Raises ClusterError with what stays."""
    with _alone():
        _check_free()
        _down()


def clear() -> None:
    """Take down what ended with nobody to take it down, as by an interrupt; nothing else."""
    with _alone():
        _check_free()
        if _orphaned():
            _down()


@contextmanager
def used() -> Iterator[None]:
    """Keep the cluster to this process; waits for a run that has it. Raises ClusterError."""
    with layout.IN_USE.open("w") as mark:
        if not _locked(mark):
            print("another test run has the cluster: waiting for its end", flush=True)
            eventually("the end of another test run", lambda: _locked(mark), TURN_S)
        _own_marks.append(mark)
        try:
            yield
        finally:
            _own_marks.remove(mark)


def is_up() -> bool:
    """Whether everything was brought up, and control plane and nodes have not ended since."""
    return UP.exists() and all(daemon.pid() is not None for daemon in daemons())


def ready() -> dict[str, bool]:
    """Each node's name, and whether the API server calls it Ready. Raises ApiError."""
    found = {}
    for item in Api.of(control_plane.ADMIN).get("/api/v1/nodes")["items"]:
        conditions = {entry["type"]: entry["status"] for entry in item["status"]["conditions"]}
        found[item["metadata"]["name"]] = conditions.get("Ready") == "True"
    return found


def start_node(node: Node) -> None:
    """Start a node that was killed."""
    nodes.start(node, PROGRAM.resolve())


def start_api_server() -> None:
    """Start the API server after ``stop_api_server``."""
    control_plane.start_api_server(PROGRAM.resolve())


def left_behind() -> list[str]:
    """Everything of a cluster that is on this machine now."""
    found = [f"process {daemon.pid()} {daemon.name}" for daemon in daemons() if daemon.pid()]
    for node in NODES:
        found += [f"process {pid} of {node.name}" for pid in cgroups.pids(node)]
        found += [f"cgroup {group}" for group in cgroups.groups(node)]
    found += [f"network {name}" for name in network.remains()]
    found += [f"mount {point}" for point in nodes.mounts_left()]
    return found + ([f"folder {ROOT}"] if ROOT.exists() else [])


def check_nothing_left() -> None:
    """Raises ClusterError with everything of a cluster that is on this machine now."""
    left = left_behind()
    if left:
        raise ClusterError(f"still there: {', '.join(left)}; remove it, or restart the machine")


def _up(program: Path, base: Path, owned: bool) -> None:
    for folder in (ROOT, ROOT / "logs", ROOT / "pids", ROOT / "pki"):
        folder.mkdir(mode=0o711)
    if owned:
        OWNER.write_text(f"{os.getpid()} {start_time(os.getpid())}")
    PROGRAM.symlink_to(program)
    control_plane.make_credentials()
    network.lay()
    for node in NODES:
        nodes.configure(node, image.BASE)
    with ThreadPoolExecutor(len(NODES) + 1) as pool:
        parts = [pool.submit(control_plane.start, program)]
        parts += [pool.submit(nodes.start, node, program, (base,)) for node in NODES]
        for part in parts:
            part.result()
    Daemon("services").start(sys.executable, "-m", services.__name__)
    eventually("every node is Ready", _all_ready, READY_S)
    UP.touch()


def _all_ready() -> bool:
    for daemon in daemons():
        daemon.check()
    try:
        return sorted(name for name, good in ready().items() if good) == [n.name for n in NODES]
    except ApiError as error:
        raise ClusterError(str(error)) from None


def _down() -> None:
    for node in NODES:
        cgroups.kill(node)
    control_plane.stop()
    for daemon in daemons():
        daemon.kill()
    for node in NODES:
        nodes.clear(node)
    network.remove()
    shutil.rmtree(ROOT, ignore_errors=True)
    check_nothing_left()


def _orphaned() -> bool:
    """Whether the process that this cluster should have ended with is gone."""
    if not OWNER.exists():
        return False
    pid, started = OWNER.read_text().split()
    return start_time(int(pid)) != started


def _check_free() -> None:
    """Raises ClusterError while another process's tests run on the cluster."""
    if _own_marks:
        return
    with layout.IN_USE.open("w") as mark:
        if not _locked(mark):
            raise ClusterError("a test run has the cluster; end it first, or wait for it")


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_own_marks: list[IO[str]] = []
"""What this process holds of IN_USE."""


@contextmanager
def _alone() -> Iterator[None]:
    with layout.LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _status() -> None:
    for daemon in daemons():
        print(f"{daemon.name:20} {daemon.pid() or 'ended'}")
    for node in NODES:
        print(f"{node.name:20} {len(cgroups.pids(node))} processes")
    if Daemon(control_plane.API).pid() is not None:
        print(*(f"{name} {'Ready' if good else 'NotReady'}" for name, good in ready().items()))


def main() -> int:
    """The command line; exit code 1 and one message if something cannot be done."""
    parser = argparse.ArgumentParser(prog="cluster", description=(__doc__ or "").split("\n\n")[0])
    alone: dict[str, Callable[[], object]] = {
        "up": up,
        "down": down,
        "clear": clear,
        "status": _status,
        "left": check_nothing_left,
        "stop-api": control_plane.stop_api_server,
        "start-api": start_api_server,
    }
    of_node = {
        "kill": cgroups.kill,
        "start": start_node,
        "cut": network.cut,
        "join": network.join,
        "freeze": cgroups.freeze,
        "thaw": cgroups.thaw,
    }
    parser.add_argument("verb", choices=[*alone, *of_node])
    parser.add_argument("node", nargs="?", choices=[node.name for node in NODES])
    asked = parser.parse_args()
    if (asked.verb in of_node) != (asked.node is not None):
        parser.error(f"a node goes with {', '.join(of_node)}, and with nothing else")
    if asked.node is None:
        work = alone[asked.verb]
    else:
        work = partial(of_node[asked.verb], next(n for n in NODES if n.name == asked.node))
    return carry_out(asked.verb, work, f"; KUBECONFIG={control_plane.ADMIN}")


def carry_out(verb: str, work: Callable[[], object], note: str = "") -> int:
    """Do it, and say how long it took; exit code 1 and one message if it cannot be done."""
    began_s = time.monotonic()
    try:
        work()
    except (ClusterError, ApiError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    print(f"{verb}: {time.monotonic() - began_s:.1f} s{note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
