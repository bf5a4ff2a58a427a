"""The objects that the handlers of a daemon use.

Does: names them; ``Access`` is the part that authorizes a request, which a standby has too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from reshape_controller.access.identities import Identities
from reshape_controller.access.sessions import Sessions
from reshape_controller.http.failures import DayEnds, completions
from reshape_controller.http.log_watch import LogWatch
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.overtaking import StartReasons
from reshape_controller.http.room import Paces, Room
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.live.clock import Clock
from reshape_controller.live.control import Control
from reshape_controller.live.leadership import Leadership
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_launcher.spec import Containment, Hold


class Access(Protocol):
    """The values that authorize a request."""

    @property
    def identities(self) -> Identities: ...

    @property
    def host_names(self) -> frozenset[str]: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def peers(self) -> frozenset[str] | None: ...

    @property
    def sessions(self) -> Sessions | None: ...

    @property
    def paces(self) -> Paces: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The objects that handlers use; one per daemon."""

    control: Control
    hub: SidecarHub
    tokens: Tokens
    identities: Identities
    host_names: frozenset[str]
    """Names by which this daemon may be addressed (Host header without the port)."""
    metrics: Metrics
    timeline: TimelineReader
    clock: Clock
    leadership: Leadership | None = None
    """None: this controller runs without an election."""
    containment: Containment = Containment(Hold.CONTAINER)
    isolation: str = ""
    """What jobs may do on this machine; empty where they run in containers."""
    """What holds the processes of attempts that start now."""
    peers: frozenset[str] | None = None
    """Addresses that may connect; None: all."""
    room: Room = field(default_factory=Room)
    log_watch: LogWatch = field(default_factory=LogWatch)
    failures: DayEnds = field(default_factory=DayEnds)
    completions: DayEnds = field(default_factory=completions)
    start_reasons: StartReasons = field(default_factory=StartReasons)
    sessions: Sessions | None = None
    """Logins of the page; None: a cookie opens nothing."""
    paces: Paces = field(default_factory=Paces)
    pins_key: bool = False
    """Whether SideCars that reach this server pin its key, so that none of them sends a plain
    report."""
