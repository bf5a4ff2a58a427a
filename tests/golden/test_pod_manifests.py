"""The objects of a job on one host do not change: a repeated launch meets those that are there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import manifests
from tests.unit.launcher.test_kubernetes_manifests import SPEC, made

KNOWN = json.loads((Path(__file__).parent / "pod-manifests.json").read_text())


@pytest.mark.parametrize(("name", "workers"), [("1 worker", 1), ("3 workers", 3)])
def test_the_objects_of_a_job_on_one_host_are_those_of_the_versions_before(
    name: str, workers: int
) -> None:
    attempt = made(replace(SPEC, workers=workers))
    objects = {
        "job": manifests.job(attempt),
        "secret": manifests.secret(attempt, "bearer", None),
        "service": manifests.service(attempt),
    }
    assert json.dumps(objects) == json.dumps(KNOWN[name]), "also the order of their fields"
