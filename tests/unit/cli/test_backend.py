"""The settings give a launcher together with its hosts, so that the daemon asks for neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.serve.hosts import Nodes, ThisMachine
from reshape_controller.cli.serve.kubernetes_settings import KubernetesSettings
from reshape_controller.cli.serve.settings import Backend
from reshape_controller.cli.serve.up import checked
from reshape_gpu.config import load
from reshape_launcher.declared_costs import DeclaredLauncher
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.pod_mounts import OWN
from reshape_launcher.local.hosts import LocalHosts
from reshape_launcher.local.launcher import LocalLauncher


def backend(tmp_path: Path, **flags: str | int) -> Backend:
    given = {"home": str(tmp_path), "simulated_gpus": 4, **flags}
    return checked(load(given, {"XDG_CONFIG_HOME": str(tmp_path)})).backend()


def test_the_local_launcher_has_this_machine_as_its_host(tmp_path: Path) -> None:
    found = backend(tmp_path)
    assert (found.name, type(found.launcher)) == ("local", LocalLauncher)
    assert isinstance(found.hosts, ThisMachine)
    assert found.work_folder == tmp_path / "jobs"
    assert (found.sidecar_url, found.sidecar_names) == (None, frozenset())


def test_several_hosts_of_this_machine_have_a_folder_each_and_share_those_of_jobs(
    tmp_path: Path,
) -> None:
    found = backend(tmp_path, hosts=2)
    assert (found.name, type(found.launcher)) == ("local", LocalHosts)
    assert isinstance(found.hosts, ThisMachine)
    assert found.work_folder == tmp_path / "jobs"
    assert found.attempts_folders == (tmp_path / "jobs", tmp_path / "hosts" / "local-1")
    assert found.launcher.no_gang() is None
    alone = backend(tmp_path, hosts=1)
    assert (type(alone.launcher), alone.attempts_folders) == (LocalLauncher, (tmp_path / "jobs",))
    assert alone.launcher.no_gang() is not None


def test_local_jobs_get_the_variables_that_the_operator_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    monkeypatch.setenv("XLA_FLAGS", "--fast")
    plain, named = backend(tmp_path), backend(tmp_path, job_environment="XLA_*")
    assert isinstance(plain.launcher, LocalLauncher)
    assert isinstance(named.launcher, LocalLauncher)
    assert {"TZ", "HOME"} <= set(plain.launcher.environment)
    assert not {"AWS_SECRET_ACCESS_KEY", "XLA_FLAGS"} & set(plain.launcher.environment)
    assert set(named.launcher.environment) - {"USER", "LOGNAME"} == {"HOME", "XLA_FLAGS"}


def test_a_list_of_variables_with_another_sign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="job_environment: 'PATH;LANG' is no name of a variable"):
        backend(tmp_path, job_environment="PATH;LANG")


def test_declared_costs_wrap_the_local_launcher(tmp_path: Path) -> None:
    found = backend(tmp_path, container_costs="paper:0.1")
    assert (found.name, type(found.launcher)) == ("local", DeclaredLauncher)
    assert isinstance(found.hosts, ThisMachine)


def test_the_kubernetes_launcher_has_the_nodes_as_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubernetesSettings, "cluster", lambda self: object())
    (tmp_path / "cluster.yaml").write_text("namespace: training\n")
    (tmp_path / "kubeconfig").write_text("{}")
    found = backend(
        tmp_path,
        launcher="kubernetes",
        launch_by="client",
        cluster=str(tmp_path / "cluster.yaml"),
        kubeconfig=str(tmp_path / "kubeconfig"),
        sidecar_bind="192.0.2.7:7471",
        sidecar_url="http://reshape.example:7471",
    )
    assert (found.name, type(found.launcher)) == ("kubernetes", KubernetesLauncher)
    assert isinstance(found.hosts, Nodes)
    assert (found.work_folder, found.sidecar_url) == (Path(OWN), "http://reshape.example:7471")
    assert found.sidecar_names == {"reshape.example", "192.0.2.7"}
