"""A call that the API server could not serve is not sent again before its pause is over."""

from __future__ import annotations

import pytest

from reshape_launcher.kubernetes import server_version
from reshape_launcher.kubernetes.call_pauses import FORGET_S, PAUSE_MAX_S, CallPauses
from reshape_launcher.kubernetes.values import KubernetesError

PODS = "pods cannot be listed"


class Server:
    """A server that fails as a test says, with a clock of the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sent: list[float] = []
        self.error: KubernetesError | None = None
        self.pauses = CallPauses(lambda: self.now_s)

    def fails(self, status: int, retry_after_s: float = 0.0) -> None:
        self.error = KubernetesError(PODS, status, "no", retry_after_s=retry_after_s)

    def ask(self) -> str:
        self.sent.append(self.now_s)
        if self.error is not None:
            raise self.error
        return "pods"

    def poll(self, end_s: float, step_s: float = 0.1) -> None:
        """Ask until a time, as a loop without any pause of its own does."""
        while self.now_s < end_s:
            with pytest.raises(KubernetesError, match="no"):
                self.pauses.run(PODS, self.ask)
            self.now_s = round(self.now_s + step_s, 3)


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_call_that_fails_is_sent_less_and_less_often(status: int) -> None:
    server = Server()
    server.fails(status)
    server.poll(60.0)
    gaps = [round(b - a, 1) for a, b in zip(server.sent, server.sent[1:], strict=False)]
    assert gaps[:4] == [0.1, 1.0, 2.0, 4.0]
    assert set(gaps[4:]) == {PAUSE_MAX_S}


def test_the_pause_that_the_server_asks_for_is_kept_from_the_first_failure_on() -> None:
    server = Server()
    server.fails(429, retry_after_s=7.0)
    server.poll(20.0)
    assert server.sent == [0.0, 7.0, 14.0]


def test_an_answer_ends_the_pauses_and_the_problem() -> None:
    server = Server()
    server.fails(500)
    server.poll(10.0)
    assert server.pauses.problem().startswith(f"{PODS}: no (HTTP 500, ")
    server.error, server.now_s = None, 20.0
    assert server.pauses.run(PODS, server.ask) == "pods"
    assert server.pauses.problem() == ""
    assert server.pauses.run(PODS, server.ask) == "pods"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
def test_a_refusal_for_its_content_pauses_no_call(status: int) -> None:
    server = Server()
    server.fails(status, retry_after_s=5.0)
    server.poll(1.0)
    assert len(server.sent) == 10
    assert server.pauses.problem() == ""


def test_one_call_that_fails_holds_up_no_other() -> None:
    server = Server()
    server.fails(500, retry_after_s=30.0)
    server.poll(1.0)
    assert server.pauses.run("jobs cannot be listed", lambda: "jobs") == "jobs"


def test_a_call_that_is_not_repeated_is_no_problem_for_ever() -> None:
    server = Server()
    server.fails(500)
    server.poll(0.1)
    server.now_s += FORGET_S + 1.0
    assert server.pauses.problem() == ""


@pytest.mark.parametrize("version", ["v1.29.0", "v1.34.4", "1.40", "v2.0.0", "v0.0.0-master", "x"])
def test_a_version_from_the_oldest_on_is_no_problem(version: str) -> None:
    assert server_version.problem(version) == ""


@pytest.mark.parametrize("version", ["v1.28.15-eks-1", "v1.9.3", "v0.9.1"])
def test_an_older_version_is_named(version: str) -> None:
    assert f"version {version}, which is older than 1.29" in server_version.problem(version)
