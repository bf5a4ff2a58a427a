"""Handlers of a standby, and of the cluster's probes on a controller's socket for pods.

Does: shows that the process answers, and which controller leads. Pods see only whether SideCars
should connect here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reshape_controller.access.identities import Identities
from reshape_controller.access.rights import Right
from reshape_controller.http.base import Gate
from reshape_controller.http.errors import ApiError, ErrorBody
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.openapi import version
from reshape_controller.http.room import Paces
from reshape_controller.live.leadership import Leadership
from reshape_gpu.values import Health, Status


@dataclass(frozen=True, slots=True)
class StandbyContext:
    """The objects that the handlers of a standby use."""

    identities: Identities
    host_names: frozenset[str]
    metrics: Metrics
    leadership: Leadership
    peers: frozenset[str] | None = None
    sessions: None = None
    """A standby takes no cookies."""
    paces: Paces = field(default_factory=Paces)


class Alive(Gate):
    """GET: the process answers. Its node asks without a token, under any host name."""

    def right(self) -> Right:
        """No token is needed."""
        return Right.OPEN

    def check_host(self) -> None:
        """Let every host name pass."""

    def get(self) -> None:
        role = "standby" if isinstance(self.context, StandbyContext) else "leader"
        self.answer(Health("ok", role=role))


class Leads(Alive):
    """GET: SideCars should connect here. A standby has no such path."""

    def get(self) -> None:
        self.answer(Health("ready"))


class StandbyStatus(Gate):
    context: StandbyContext

    def get(self) -> None:
        leadership = self.context.leadership
        reason = _reason(leadership)
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
    """Handles every other path of a standby; the error names the leader."""

    context: StandbyContext

    async def permit(self) -> None:
        await super().permit()
        hint = "ask the leader"
        raise ApiError(503, ErrorBody("standby", _reason(self.context.leadership), "", hint))


class PodsStandby(Alive):
    """Handles every other path for pods; the error names no leader, and a SideCar asks again."""

    async def permit(self) -> None:
        await super().permit()
        raise ApiError(503, ErrorBody("standby", "this controller is a standby"))


def _reason(leadership: Leadership) -> str:
    return f"this controller is a standby; the leader is {leadership.holder or 'not known yet'}"
