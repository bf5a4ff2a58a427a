"""A daemon with running pods whose API server fails, by a proxy before the real one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import Namespace, eventually
from tests.kubernetes.pod_daemon import PodDaemon
from tests.support.api_proxy import BROKEN, TOO_MANY, ApiProxy

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]
FOUR, AWAY_S, PER_S_MAX = 4, 40.0, 6.0
"""A release has 30 s; requests per second of a daemon whose API server fails."""


class BehindProxy(PodDaemon):
    """A daemon that reaches the API server by a proxy."""

    proxy: ApiProxy

    def words(self) -> tuple[str, ...]:
        words = list(super().words())
        token = self.api.token or ""
        words[words.index("--kubeconfig") + 1] = str(self.proxy.kubeconfig(self.folder, token))
        return tuple(words)

    def waits_for(self) -> str:
        return str(self.json("status")["waits_for"])


@pytest.fixture
def behind(own_cluster: Grounds, namespace: Namespace, tmp_path: Path) -> Iterator[BehindProxy]:
    """A daemon on one node, behind a proxy."""
    whole = json.loads(namespace.grounds.kubeconfig.read_text())
    authority = whole["clusters"][0]["cluster"]["certificate-authority"]
    with ApiProxy(namespace.api.url, authority) as proxy:
        made = BehindProxy(tmp_path, namespace)
        made.proxy = proxy
        made.unused = tuple(namespace.grounds.nodes[1:])
        try:
            yield made
        finally:
            made.close()


def test_a_failing_api_server_is_named_and_a_hand_over_under_it_loses_nothing(
    behind: BehindProxy,
) -> None:
    behind.up()
    job = behind.submit_counting("long", [2, FOUR], 100_000)
    before = behind.trains(job, FOUR)
    container = behind.container(job)

    with behind.proxy.answering(TOO_MANY):
        eventually("429 is named", lambda: "HTTP 429" in behind.waits_for())
        begin_s = time.monotonic()
        assert behind.reshape("cancel", behind.submit_counting("gone", [FOUR], 10)).returncode == 0
        time.sleep(AWAY_S / 4)
        passed_s = time.monotonic() - begin_s
        assert len(behind.proxy.since(begin_s)) <= PER_S_MAX * passed_s, "no busy loop"
    eventually("nothing is left of it", lambda: behind.waits_for() == "")
    with behind.proxy.short_watches(0.0):
        eventually("the watch is named", lambda: "be watched" in behind.waits_for())
    eventually("nothing is left of it", lambda: behind.waits_for() == "")

    second = behind.submit_counting("second", [2], 100_000, max_wait_s=1)
    behind.wait(job, "is asked to shrink", state="adjusting")
    with behind.proxy.answering(BROKEN):
        time.sleep(AWAY_S)  # longer than a release may take
        assert "etcdserver: request timed out" in behind.waits_for()
    after = behind.trains(job, 2)
    assert behind.trains(second, 2).failures == 0
    assert (after.attempt, after.failures, after.steps_lost) == (before.attempt, 0, 0)
    assert behind.container(job) == container, "no pod was lost"
    states = {gpu["state"] for gpu in behind.json("gpus")["gpus"]}
    assert "quarantined" not in states
    assert "Traceback" not in behind.log.read_text()
