"""The playbook, run by ansible-runner: what failed is named, and no text becomes a template."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher import ansible
from reshape_launcher.kubernetes import manifests, pod, sidecar_archive
from reshape_launcher.kubernetes.apply import ByPlaybook, Directly, Objects, Target
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.images import CODE_IN_IMAGE, Build, wanted
from reshape_launcher.kubernetes.pod_mounts import OWN, mounts_of
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.spec import ClusterAway, LaunchError, LaunchSpec
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC

NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "x",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "bearer-canary"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
}
"""Nothing listens there."""
FAKE_BUILDAH = """#!/bin/sh
echo "$@" >> {log}
case "$1" in {fails}) echo "no space left" >&2; exit 1;; esac
"""


@pytest.fixture
def by_playbook(tmp_path: Path) -> ByPlaybook:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(NOWHERE))
    return ByPlaybook(tmp_path / "runs", Target(str(kubeconfig), "jobs"))


def objects(spec: LaunchSpec = SPEC) -> Objects:
    packed = sidecar_archive.Archive(b"not looked at here")
    told = SimulatedDevices(2).environment(spec)
    attempt = pod.Attempt(spec, SETTINGS, mounts_of(spec, SETTINGS), packed, told)
    return Objects(
        manifests.config_map(packed, SETTINGS),
        manifests.job(attempt),
        manifests.secret(attempt, "token-canary", None),
    )


def buildah(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "nothing") -> Path:
    """A buildah that writes down what it is asked; gives that file."""
    log, program = tmp_path / "buildah.log", tmp_path / "bin" / "buildah"
    program.parent.mkdir()
    program.write_text(FAKE_BUILDAH.format(log=log, fails=fails))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


def everything_below(folder: Path) -> str:
    return "".join(p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file())


def test_the_task_that_failed_is_named_with_its_message_and_no_secret_is_kept(
    by_playbook: ByPlaybook, tmp_path: Path
) -> None:
    with pytest.raises(LaunchError, match="task 'Launch the manifests'") as e:
        by_playbook(objects(), None)
    assert isinstance(e.value, ClusterAway), "an outage is no failure of the job"
    assert "does not answer" in str(e.value)
    kept = everything_below(tmp_path / "runs")
    assert "Launch the manifests" in kept, "the artifacts of the run"
    for canary in ("token-canary", "bearer-canary"):
        assert canary not in kept
    assert list((tmp_path / "runs").glob("run-*")) == []


def test_the_image_is_built_and_pushed_before_anything_is_launched(
    by_playbook: ByPlaybook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = buildah(tmp_path, monkeypatch)
    canary = tmp_path / "canary"
    code = tmp_path / f"{{{{ lookup('pipe', 'touch {canary.name}') }}}}"
    code.mkdir()
    with pytest.raises(LaunchError, match="Launch the manifests"):
        by_playbook(objects(), Build("base:1", "registry.example/a:1", str(code)))
    build, push = log.read_text().splitlines()
    assert build.startswith("build --file=")
    assert "--tag=registry.example/a:1" in build
    assert push == "push registry.example/a:1"
    assert "lookup" not in build
    assert list(tmp_path.rglob(canary.name)) == []


def test_a_failed_build_is_told_in_its_own_words_and_launches_nothing(
    by_playbook: ByPlaybook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = buildah(tmp_path, monkeypatch, fails="build")
    with pytest.raises(LaunchError, match="task 'Build the image': no space left"):
        by_playbook(objects(), Build("base:1", "registry.example/a:1", str(tmp_path)))
    assert len(log.read_text().splitlines()) == 1


def test_a_home_that_ansible_would_read_as_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ansible.PlaybookFailed, match="give a home without braces"):
        ansible.run(tmp_path, tmp_path / "{{ x }}", "a")


def test_a_task_that_may_fail_is_no_failure() -> None:
    event = {
        "event": "runner_on_failed",
        "event_data": {"task": "x", "ignore_errors": True, "res": {"msg": "y"}},
    }
    assert ansible.failure_of(event) is None
    event["event_data"] = {"task": "x", "res": {"msg": "non-zero", "stderr": "a\n b"}}
    assert ansible.failure_of(event) == ansible.TaskFailure("x", "a b")
    assert ansible.failure_of({"event": "runner_on_ok"}) is None


def test_without_the_playbook_no_image_is_built() -> None:
    with pytest.raises(LaunchError, match="only the playbook"):
        Directly(FakeCluster())(objects(), Build("base:1", "a:1", "/code"))


REGISTRY = replace(SETTINGS, registry="registry.example/team")


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"image": "own:1", "code": "/home/ada/code"}, REGISTRY),
        ({"code": "claim:code/a"}, REGISTRY),
        ({"code": str(OWN / "a" / "work")}, REGISTRY),
        ({"code": "/home/ada/code"}, SETTINGS),
    ],
)
def test_nothing_is_built_for_a_record_that_brings_its_image_or_no_code(
    changes: dict[str, str], settings: PodSettings
) -> None:
    spec = replace(SPEC, **changes)  # type: ignore[arg-type]
    assert wanted(spec, settings) == (spec, None)


def test_code_of_this_machine_becomes_an_image_on_top_of_the_operators() -> None:
    spec, build = wanted(replace(SPEC, code="/home/ada/code"), REGISTRY)
    assert build is not None
    assert (build.base, build.code) == ("base:1", "/home/ada/code")
    assert spec.image == build.image
    assert build.image.startswith("registry.example/team/")
    assert spec.code == CODE_IN_IMAGE
    again, _ = wanted(replace(SPEC, code="/home/ada/code", attempt=2), REGISTRY)
    assert again.image != spec.image
    with pytest.raises(LaunchError, match="there is no base image"):
        wanted(replace(SPEC, code="/home/ada/code"), replace(REGISTRY, image=None))
