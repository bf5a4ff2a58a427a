"""An operator's way from the README to a first job: `tests/journeys/operator.sh` on the nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.pod_daemon import PodDaemon
from tests.support.daemon_bed import ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]
JOURNEY = ROOT / "tests" / "journeys" / "operator.sh"


def test_an_operator_reaches_a_first_job_on_a_cluster(daemon: PodDaemon) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RESHAPE_")}
    if daemon.namespace.grounds.own:
        cluster = json.loads(daemon.cluster_file.read_text())
        cluster["storage_folder"] = str(daemon.namespace.folder)
        daemon.cluster_file.write_text(json.dumps(cluster))
    given = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(daemon.namespace.grounds.kubeconfig),
        "CLUSTER_FILE": str(daemon.cluster_file),
        "ADDRESS": daemon.bind,
    }
    done = subprocess.run(
        ["bash", str(JOURNEY)], env=kept | given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if daemon.namespace.grounds.own:
        gpus = {f"trains on sim-{node}-0,sim-{node}-1" for node in daemon.namespace.grounds.nodes}
        assert any(text in done.stdout for text in gpus)
    daemon.nothing_left()
