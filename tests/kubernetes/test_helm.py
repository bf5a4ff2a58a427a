"""The chart by helm itself: installed, upgraded and uninstalled under a job that trains.

helm installs the documents that it renders, with the image, the code and the address of this
cluster in them (a post-renderer). The store's claim is made beside, for it is a folder here.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kubernetes import helm
from tests.kubernetes.controller_pod import ControllerPod
from tests.kubernetes.deployed import CHART, by_name, rendered
from tests.kubernetes.namespace import Namespace, Thing, eventually
from tests.kubernetes.running import run
from tests.kubernetes.test_in_cluster import completes_unharmed, job, submitted

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
RELEASE, CLAIM = "reshape", "PersistentVolumeClaim"
ADDRESS = "10.96.201.7"
"""Of the controller's Service, known before it is made."""


class Release:
    """A release of the chart in a namespace."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self._folder = namespace, folder
        self.pod_of = ControllerPod(namespace, [])
        self._script = folder / "fitted.sh"
        self._script.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {folder}/fitted.yaml\n")
        self._script.chmod(self._script.stat().st_mode | stat.S_IXUSR)

    def prepare(self) -> None:
        """Make the claims of code and store."""
        self.pod_of.bring_code()
        self.namespace.claim(RELEASE, self.pod_of.home())

    def put(self, verb: str, *values: str) -> None:
        """Have helm install or upgrade the release with these values."""
        leases = f"cluster.node_lease_namespace={self.namespace.name}"
        documents = rendered(leases, *values, namespace=self.namespace.name)
        controller = ControllerPod(self.namespace, documents)
        controller.address = ADDRESS
        controller.cluster_file()
        named = by_name(documents)
        controller.fit(named["Deployment", RELEASE])
        named["Service", RELEASE]["spec"]["clusterIP"] = ADDRESS
        kept = [each for each in documents if each["kind"] != CLAIM]
        (self._folder / "fitted.yaml").write_text(yaml.safe_dump_all(kept))
        sets = [word for value in (leases, *values) for word in ("--set", value)]
        self._helm(verb, RELEASE, CHART, *sets, "--post-renderer", self._script)

    def uninstall(self) -> None:
        """Have helm take the release away; nothing happens if there is none."""
        self._helm("uninstall", RELEASE, "--ignore-not-found", "--wait")

    def revision(self) -> str:
        """What helm says of the release."""
        return self._helm("status", RELEASE)

    def _helm(self, *words: str | Path) -> str:
        kubeconfig = str(self.namespace.grounds.kubeconfig)
        space = ("--namespace", self.namespace.name)
        return run(helm.provide(), *words, *space, KUBECONFIG=kubeconfig)


@pytest.fixture
def release(namespace: Namespace, tmp_path: Path) -> Iterator[Release]:
    made = Release(namespace, tmp_path)
    made.prepare()
    try:
        yield made
    finally:
        made.uninstall()


def training_pod(release: Release) -> tuple[str, int]:
    """Uid and restarts of the pod in which the job trains."""
    found = release.namespace.things("pods")
    (pod,) = (p for p in found if "reshape.dev/job-key" in p["metadata"].get("labels", {}))
    return pod["metadata"]["uid"], sum(
        c["restartCount"] for c in pod["status"]["containerStatuses"]
    )


def next_controller(release: Release, before: Thing) -> Thing:
    """The pod that leads once that of ``before`` is gone."""
    gone, controller = before["metadata"]["uid"], release.pod_of
    eventually("it is gone", lambda: all(p["metadata"]["uid"] != gone for p in controller.pods()))
    return controller.ready()


def test_a_job_trains_through_an_upgrade_an_uninstallation_and_a_new_installation(
    release: Release,
) -> None:
    release.put("install")
    controller = release.pod_of
    first = controller.ready()
    running = submitted(controller, first)
    trains = training_pod(release)

    release.put("upgrade", "podAnnotations.upgrade=one")
    second = next_controller(release, first)
    assert "REVISION: 2" in release.revision()
    assert second["metadata"]["annotations"]["upgrade"] == "one"
    assert training_pod(release) == trains

    release.uninstall()
    eventually("no controller is left", lambda: not controller.pods())
    assert training_pod(release) == trains, "the objects of jobs stay"

    release.put("install")
    third = controller.ready()
    again = eventually(
        "the controller has found its job",
        lambda: (j := job(controller, third, "count"))["pid"] and j,
    )
    assert (again["pid"], again["attempt"]) == (running["pid"], 1)
    assert training_pod(release) == trains
    completes_unharmed(controller, third, running)
