"""What a standby answers, and what a cluster asks of any controller's socket for pods.

Does: says that the process answers, and who leads. Never: takes a request, or tells pods more than
whether SideCars should be led here. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.http.base import Gate
from reshape_controller.http.errors import ApiError, ErrorBody
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.openapi import version
from reshape_controller.http.views import Health, Status
from reshape_controller.live.leadership import Leadership


@dataclass(frozen=True, slots=True)
class StandbyContext:
    """What the handlers of a daemon work with that does not lead yet."""

    operator_token: str
    host_names: frozenset[str]
    metrics: Metrics
    leadership: Leadership


class Alive(Gate):
    """The process answers. Asked by its node, under whatever name, without a token."""

    def authorize(self) -> None:
        """Nothing is asked for."""

    def check_host(self) -> None:
        """Any name is good."""

    def get(self) -> None:
        role = "standby" if isinstance(self.context, StandbyContext) else "leader"
        self.answer(Health("ok", role=role))


class Leads(Alive):
    """SideCars should be led here. A standby has no such path."""

    def get(self) -> None:
        self.answer(Health("ready"))


class StandbyStatus(Gate):
    context: StandbyContext

    def get(self) -> None:
        leadership = self.context.leadership
        reason = _waiting(leadership)
        self.answer(
            Status(
                "standby",
                ready=False,
                version=version(),
                reason=reason,
                name=leadership.name,
                leader=leadership.holder,
                lease_held=leadership.held,
            )
        )


class Standby(Gate):
    """Every other path of a standby. Pods are not told who leads."""

    context: StandbyContext

    async def prepare(self) -> None:  # type: ignore[override]
        super().prepare()
        hint = "ask the leader"
        raise ApiError(503, ErrorBody("standby", _waiting(self.context.leadership), "", hint))


class PodsStandby(Alive):
    """The same for pods: a SideCar that was led here asks again."""

    async def prepare(self) -> None:  # type: ignore[override]
        super().prepare()
        raise ApiError(503, ErrorBody("standby", "this controller is a standby"))


def _waiting(leadership: Leadership) -> str:
    return f"this controller is a standby; the leader is {leadership.holder or 'not known yet'}"
