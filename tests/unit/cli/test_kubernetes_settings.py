"""Settings of ``--launcher kubernetes``: each mistake is one message before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.serve.cluster_file import read
from reshape_controller.cli.serve.doctor import doctor
from reshape_controller.cli.serve.kubernetes_settings import KubernetesSettings, kubernetes_settings
from reshape_controller.http.app import SIDECAR_ROUTES
from reshape_gpu.config import load
from reshape_launcher.kubernetes.gpu_probe import ProbedDevices
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.settings import ClaimMount, OpenClaim, PodSettings

GIVEN = {"launcher": "kubernetes", "simulated_gpus": 4, "sidecar_bind": "192.0.2.7:7471"}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text("namespace: training\n")
    return path


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    return path


def place(**flags: object) -> KubernetesSettings | None:
    return kubernetes_settings(load(flags, {}))  # type: ignore[arg-type]


def problem(**flags: object) -> str:
    with pytest.raises(CliError) as caught:
        place(**flags)
    (found,) = caught.value.problems
    return f"{found.what} / {found.where} / {found.remedy}"


def test_the_local_launcher_has_no_cluster_and_refuses_its_settings() -> None:
    assert place() is None
    assert "needs --launcher kubernetes" in problem(sidecar_url="http://x")


def test_a_whole_setting_is_a_place(cluster: Path, kubeconfig: Path) -> None:
    found = place(**GIVEN, cluster=str(cluster), kubeconfig=str(kubeconfig))
    assert found is not None
    assert (found.pods.namespace, found.devices) == ("training", SimulatedDevices(4))
    assert found.sidecar_url == "http://192.0.2.7:7471"


def test_without_simulated_gpus_the_nodes_say_what_they_have(
    cluster: Path, kubeconfig: Path
) -> None:
    flags = {**GIVEN, "cluster": str(cluster), "kubeconfig": str(kubeconfig)}
    del flags["simulated_gpus"]
    assert "the cluster file has no" in problem(**flags)
    cluster.write_text("namespace: training\nimage: base:1\nruntime_class: nvidia\n")
    found = place(**flags)
    assert found is not None
    assert isinstance(found.devices, ProbedDevices)
    assert found.devices.runtime_class == "nvidia"
    assert "runtime class nvidia; no device plugin" in found.devices.mode
    assert "nodes report their own GPUs" in problem(**flags, gpus=2)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"cluster": None}, "needs a cluster file"),
        ({"cluster": None}, "--cluster FILE (docs/kubernetes.md)"),
        ({"cluster": "/nowhere.yaml"}, "cannot be read"),
        ({"sidecar_bind": None}, "needs an address on which the daemon listens"),
        ({"sidecar_bind": "host:1"}, "is not IP-ADDRESS:PORT"),
        ({"sidecar_bind": "192.0.2.7"}, "is not IP-ADDRESS:PORT"),
        ({"sidecar_bind": "192.0.2.7:0"}, "is not IP-ADDRESS:PORT"),
        ({"sidecar_bind": "0.0.0.0:1"}, "pods need a specific one"),
        ({"sidecar_url": "ftp://x"}, "is not an http(s) URL"),
        ({"kubeconfig": "/nowhere"}, "does not exist"),
        ({"container_costs": "paper"}, "applies to --launcher local only"),
        ({"hosts": 2}, "hosts applies to --launcher local only; the hosts of a cluster are its"),
    ],
)
def test_what_is_missing_or_wrong_is_named_with_its_remedy(
    cluster: Path, kubeconfig: Path, changes: dict[str, object], what: str
) -> None:
    flags = {**GIVEN, "cluster": str(cluster), "kubeconfig": str(kubeconfig), **changes}
    assert what in problem(**flags)


def test_every_address_may_be_bound_when_the_url_says_which(
    cluster: Path, kubeconfig: Path
) -> None:
    flags = {**GIVEN, "cluster": str(cluster), "kubeconfig": str(kubeconfig)}
    flags |= {"sidecar_bind": "[::]:7471", "sidecar_url": "http://reshape.training:80/"}
    found = place(**flags)
    assert found is not None
    assert (found.sidecar_address, found.sidecar_url) == ("::", "http://reshape.training:80")


@pytest.mark.parametrize(
    ("changes", "pinned", "is_plain"),
    [
        ({}, True, False),
        ({"sidecar_url": "http://reshape.training.svc:7471"}, True, False),
        ({"sidecar_url": "https://proxy.example"}, False, False),
        ({"sidecar_bind": "127.0.0.1:7471"}, False, False),
        ({"sidecar_url": "http://[::1]:7471"}, False, True),
        ({"sidecar_url": "http://localhost:7471"}, False, True),
        ({"sidecar_tls": "off"}, False, True),
        ({"sidecar_tls": "off", "sidecar_bind": "127.0.0.1:7471"}, False, False),
    ],
)
def test_sidecars_pin_the_daemons_key_wherever_plain_http_would_leave_the_machine(
    cluster: Path, kubeconfig: Path, changes: dict[str, object], pinned: bool, is_plain: bool
) -> None:
    flags = {**GIVEN, "cluster": str(cluster), "kubeconfig": str(kubeconfig), **changes}
    found = place(**flags)
    assert found is not None
    assert found.sidecar_tls is pinned
    assert found.is_plain is is_plain
    assert ("DANGER" in found.transport) is is_plain


def test_the_cluster_file_says_everything_that_every_pod_gets(cluster: Path) -> None:
    cluster.write_text(
        "namespace: training\ncontroller: blue\nimage: base:1\nstorage_claim: checkpoints\n"
        "mounts: [{claim: data, path: /data, folder: sets/a}]\nuser_id: 1000\ncpus: 2\n"
        "memory: 4Gi\nscratch: 1Gi\nkeep_finished_s: 60\ntolerate_taints: [gpu]\n"
        "node_labels: {pool: blue, example.com/gpus: 'yes'}\n"
    )
    found = read(cluster)
    assert found.mounts == (ClaimMount("data", "/data", "sets/a", True),)
    assert (found.memory_bytes, found.scratch_bytes) == (4 << 30, 1 << 30)
    assert (found.controller, found.user_id, found.finished_ttl_s) == ("blue", 1000, 60)
    assert found.tolerated_taints == ("gpu",)
    assert found.node_selector == "example.com/gpus=yes,pool=blue"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "namespace"),
        ("namespace: A_b", "namespace"),
        ("namespace: a\nuser_id: 0", "user_id"),
        ("namespace: a\nhostPath: /", "hostPath"),
        ("namespace: a\nmounts: [{claim: a, path: x}]", "mounts.0.path"),
        ("namespace: a\nmounts: [{claim: a, path: /x, folder: ../y}]", "mounts.0.folder"),
        ("namespace: a\nmemory: 1", "memory"),
        ("namespace: a\ncontroller: '-'", "controller"),
        ("namespace: a\nnode_labels: {'a,b': c}", "node_labels"),
        ("namespace: a\nnode_labels: {a: 'b,c=d'}", "node_labels.a"),
        ("- a", "the file"),
        ("a: [", "line 1"),
        ("namespace: a\nnamespace: b", "line 2: 'namespace' appears twice"),
    ],
)
def test_a_wrong_cluster_file_names_the_field(cluster: Path, text: str, field: str) -> None:
    cluster.write_text(text)
    with pytest.raises(CliError) as caught:
        read(cluster)
    assert field in caught.value.problems[0].what


WITHOUT = """
import sys
for name in ("kubernetes", "ansible_runner", "ansible"):
    sys.modules[name] = None
from reshape_controller.cli.main import build
build()
from reshape_launcher.kubernetes import apply, launcher, preflight
"""


def test_the_command_needs_neither_the_clusters_client_nor_ansible_until_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_doctor_reports_what_it_cannot_even_ask(
    cluster: Path, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        doctor(
            home=str(tmp_path / "home"),
            launcher="kubernetes",
            kubeconfig=str(kubeconfig),
            cluster=str(cluster),
            launch_by="ansible",
            sidecar_bind="127.0.0.1:1",
            sidecar_url=None,
            simulated_gpus=2,
            output="json",
        )
    assert caught.value.exit_code == Exit.FAILED
    report = json.loads(capsys.readouterr().out)
    found = {finding["check"]: finding for finding in report["findings"]}
    assert not report["ok"]
    assert not found["API server"]["ok"]
    assert found["API server"]["remedy"]
    assert found["playbook launch.yml"]["ok"]


def test_doctor_on_one_machine_looks_for_its_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor(home=str(tmp_path / "home"), launcher="local", simulated_gpus=2, port=0, output="json")
    assert json.loads(capsys.readouterr().out)["findings"][1]["detail"] == "2 simulated GPUs"


def test_pods_are_offered_the_sidecars_link_alone() -> None:
    (link, *probes) = SIDECAR_ROUTES
    assert "/v1/sidecar/" in link[0]
    assert [pattern for pattern, _ in probes] == ["/healthz", "/readyz", "/metrics"]


def settings_of(folder: Path, text: str) -> PodSettings:
    file = folder / "cluster.yaml"
    file.write_text(f"namespace: jobs\n{text}")
    return read(file)


def test_a_cluster_file_lists_the_claims_and_images_that_records_may_name(tmp_path: Path) -> None:
    text = """
claims:
- claim: data
- {claim: work, folder: "home/{user}", read_only: false}
images: [registry.example/team/]
"""
    found = settings_of(tmp_path, text)
    assert found.claims == (
        OpenClaim("data"),
        OpenClaim("work", "home/{user}", read_only=False),
    )
    assert found.images == ("registry.example/team/",)
    assert settings_of(tmp_path, "claims: []").claims == ()
    assert settings_of(tmp_path, "").claims is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("claims: [{claim: data, folder: ../x}]", "claims.0.folder"),
        ("claims: [{claim: data, folder: /x}]", "claims.0.folder"),
        ("claims: [{claim: data, folder: '{group}'}]", "claims.0.folder"),
        ("controller_claim: own\nclaims: [{claim: own}]", "has the controller's token and store"),
        ("controller_claim: own\nstorage_claim: own", "has the controller's token and store"),
        (
            "controller_claim: own\nmounts: [{claim: own, path: /x}]",
            "has the controller's token and store",
        ),
    ],
)
def test_a_list_of_claims_that_opens_too_much_is_refused(
    tmp_path: Path, text: str, what: str
) -> None:
    with pytest.raises(CliError) as refused:
        settings_of(tmp_path, text)
    assert what in refused.value.text()
