"""What the Kubernetes tier says where it cannot run: one message, with the remedy, and no skip."""

from __future__ import annotations

import fcntl
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes import (
    cgroups,
    cluster,
    grounds,
    layout,
    machine,
    packages,
    running,
    server,
    services,
)
from tests.kubernetes.running import ClusterError, Daemon

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any program, and with an empty cache; gives its folder of programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBENODE", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(layout, "CNI_PLUGINS", tmp_path / "cni")
    return programs


def make_go(programs: Path, version: str) -> None:
    """A Go that knows its version and nothing else."""
    go = programs / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)


def test_without_a_server_program_all_three_ways_are_named(nothing_installed: Path) -> None:
    said = server.fault() or ""
    assert all(way in said for way in ("KUBENODE", "Go 1.24", "KUBECONFIG"))


@pytest.mark.parametrize(
    ("version", "enough"), [("go1.23.9", False), ("go1.24", True), ("go1.30.1", True), ("?", False)]
)
def test_go_builds_the_servers_from_1_24_on(
    nothing_installed: Path, version: str, enough: bool
) -> None:
    make_go(nothing_installed, version)
    assert (server.fault() is None) is enough


def test_a_kubenode_that_is_not_there_is_named(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_go(nothing_installed, "go1.26")
    monkeypatch.setenv("KUBENODE", str(tmp_path / "absent"))
    assert f"KUBENODE={tmp_path / 'absent'} is not a file" in (server.fault() or "")


def test_a_packed_kubenode_is_unpacked_once(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packed = tmp_path / "kubenode.xz"
    packed.write_bytes(lzma.compress(b"program"))
    monkeypatch.setenv("KUBENODE", str(packed))
    program = server.provide()
    assert program.name == "kubenode", "it may take its own name for a server's"
    assert program.read_bytes() == b"program"
    assert os.access(program, os.X_OK)
    assert server.provide() == program
    packed.write_bytes(b"no archive at all")
    with pytest.raises(ClusterError, match="cannot be unpacked"):
        server.provide()
    assert list(program.parent.glob("*")) == [program]


def test_everything_that_is_missing_is_in_one_message(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(layout, "CGROUPS", tmp_path / "none")
    with pytest.raises(ClusterError) as refused:
        machine.prepare()
    said = str(refused.value)
    for word in ("root", "memory, pids of version 1", "KUBENODE", "apt-get install", "containerd"):
        assert word in said


def test_cgroups_of_version_2_are_tried_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(layout, "CGROUPS", tmp_path)
    monkeypatch.delenv(cgroups.TRY_2, raising=False)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    assert f"set {cgroups.TRY_2}=2 to try it" in (cgroups.fault() or "")
    monkeypatch.setenv(cgroups.TRY_2, "2")
    assert cgroups.fault() is None
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    assert "lack the controllers cpuset, pids" in (cgroups.fault() or "")


def test_packages_are_not_installed_where_the_nodes_could_not_run_anyway(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = nothing_installed / "apt-get"
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    apt.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ClusterError, match="no Kubernetes server program"):
        machine.prepare()
    assert not (tmp_path / "ran").exists()
    make_go(nothing_installed, "go1.26")
    monkeypatch.setattr(cgroups, "fault", lambda: None)
    monkeypatch.setattr(machine, "FOREIGN_KUBELET", ())
    with pytest.raises(ClusterError, match="missing programs"):
        machine.prepare()
    assert (tmp_path / "ran").exists()


def test_a_given_cluster_needs_its_image_address_and_storage(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    for name in (grounds.IMAGE, grounds.ADDRESS, grounds.STORAGE):
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(ClusterError, match=r"IMAGE.*ADDRESS.*STORAGE_CLASS"),
        grounds.grounds(),
    ):
        pass


def test_where_a_cluster_is_given_nothing_is_prepared_and_nothing_is_needed(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepared, looked = [], []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(cluster, "prepare", lambda: prepared.append(True))
    monkeypatch.setattr(grounds, "_given", lambda path: looked.append(path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    grounds.prepare()
    assert (prepared, looked) == ([], [tmp_path / "config"])
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(ClusterError, match="nodes need root"):
        grounds.prepare()
    assert prepared == []


def test_the_command_fails_with_one_message_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.grounds", "prepare"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cluster: no Kubernetes cluster can be started")
    assert "Traceback" not in done.stderr


def test_only_one_test_run_has_the_cluster_and_nobody_takes_it_down_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(layout, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(layout, "IN_USE", tmp_path / "in-use")
    taken_down = []
    monkeypatch.setattr(cluster, "_down", lambda: taken_down.append(True))
    with (tmp_path / "in-use").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for change in (cluster.down, cluster.up):
            with pytest.raises(ClusterError, match="a test run has the cluster"):
                change()
        monkeypatch.setattr(cluster, "TURN_S", 0.3)
        with pytest.raises(ClusterError, match="the end of another test run"), cluster.used():
            pass
    assert taken_down == []
    with cluster.used():
        cluster.down()
    cluster.down()
    assert taken_down == [True, True]


def test_only_what_nobody_takes_down_any_more_is_cleared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("LOCK", "lock"), ("IN_USE", "in-use")):
        monkeypatch.setattr(layout, name, tmp_path / value)
    monkeypatch.setattr(cluster, "OWNER", tmp_path / "owner")
    taken_down = []
    monkeypatch.setattr(cluster, "_down", lambda: taken_down.append(True))
    cluster.clear()
    cluster.OWNER.write_text(f"{os.getpid()} {running.start_time(os.getpid())}")
    cluster.clear()
    assert taken_down == []
    cluster.OWNER.write_text(f"{os.getpid()} 1")
    cluster.clear()
    assert taken_down == [True]


@pytest.mark.parametrize(("worker", "number"), [(None, 3), ("gw0", 3), ("gw1", 4)])
def test_each_worker_has_a_cluster_of_its_own(worker: str | None, number: int) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment["RESHAPE_KUBE_NUMBER"] = "3"
    if worker is not None:
        environment["PYTEST_XDIST_WORKER"] = worker
    look = "from tests.kubernetes import layout; print(layout.BRIDGE, layout.ROOT)"
    said = subprocess.check_output(
        [sys.executable, "-c", look], cwd=ROOT, env=environment, text=True
    )
    assert said == f"rk{number}-bridge /var/tmp/reshape-kube-{number}\n"


def test_pods_get_what_they_import_and_nothing_to_develop_with() -> None:
    wanted = packages.requirements()
    assert "\ntensorflow-cpu==" in wanted
    assert "\nkeras==" in wanted
    assert "--hash=sha256:" in wanted
    assert not any(name in wanted for name in ("\npytest==", "\nmypy==", "\nscipy=="))


def test_a_daemon_is_known_by_pid_and_start_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("pids", "logs"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(layout, "ROOT", tmp_path)
    sleep = shutil.which("sleep")
    assert sleep is not None
    daemon = Daemon("sleeper")
    daemon.start(sleep, "60")
    pid = daemon.pid()
    assert pid is not None
    recorded = daemon.record.read_text()
    daemon.record.write_text(f"{pid} 1")
    daemon.kill()
    assert running.start_time(pid) is not None, "another process with that pid was killed"
    daemon.record.write_text(recorded)
    daemon.kill()
    assert daemon.pid() is None
    daemon.kill()


def test_what_make_and_ci_ask_of_the_cluster_is_something_that_it_can_do() -> None:
    files = [ROOT / "Makefile", *sorted((ROOT / ".ci").glob("*.py"))]
    text = re.sub('[",]', "", " ".join(path.read_text() for path in files))
    asked = set(re.findall(r"-m (tests\.kubernetes\.\w+) (\w+)", text))
    assert {"prepare", "left"} <= {verb for _, verb in asked}
    for module, verb in asked:
        said = subprocess.check_output([sys.executable, "-m", module, "-h"], cwd=ROOT, text=True)
        assert re.search(rf"\b{verb}\b", said), f"python -m {module} {verb}"


class OneAnswer:
    """An API server that knows one thing."""

    def __init__(self, items: list[object]) -> None:
        self.items = items

    def get(self, path: str) -> object:
        return {"items": self.items}


def test_of_a_given_cluster_the_nodes_count_that_take_pods() -> None:
    def node(name: str, ready: str = "True", *effects: str) -> object:
        return {
            "metadata": {"name": name},
            "spec": {"taints": [{"key": "any", "effect": effect} for effect in effects]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }

    nodes = [node("good"), node("silent", "Unknown"), node("control", "True", "NoSchedule")]
    nodes += [node("avoided", "True", "PreferNoSchedule")]
    assert [*grounds.usable(OneAnswer(nodes))] == ["good", "avoided"]  # type: ignore[arg-type]


def test_the_address_of_a_service_leads_to_a_pod_that_is_ready() -> None:
    who = {"namespace": "a", "name": "s"}
    port = {"name": "sidecars", "port": 7471, "targetPort": "x"}
    service = {"metadata": who, "spec": {"clusterIP": "10.96.0.9", "ports": [port]}}
    headless = {"metadata": who, "spec": {"clusterIP": "None", "ports": [port]}}

    def piece(address: str, ready: bool, namespace: str = "a") -> dict[str, object]:
        return {
            "metadata": {"namespace": namespace, "labels": {services.OF_SERVICE: "s"}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
            "ports": [{"name": "sidecars", "port": 8000}],
        }

    slices = [piece("10.88.0.1", False), piece("10.88.0.2", True), piece("10.88.0.0", True, "b")]
    found = services.ways([service, headless], slices)
    assert found == [services.Way("10.96.0.9", 7471, "10.88.0.2", 8000)]
    assert "-d 10.96.0.9 -p tcp --dport 7471 -j DNAT --to-destination 10.88.0.2:8000" in (
        services.rules(found)
    )
    assert "DNAT" not in services.rules(services.ways([service], slices[:1]))
