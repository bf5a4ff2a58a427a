"""The page of a run that is over: the same handlers over a log that nothing goes on writing.

Does: serves the API's GET requests to one reader, who has a token of this process, and the page.
Never: takes a request that would change something, or starts an engine's effects. State: none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.access.identities import Identities
from reshape_controller.core.model import Job
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.http.app import LOOPBACK, PAGE_ROUTES, ROUTES, Route, host_names
from reshape_controller.http.base import Handler
from reshape_controller.http.context import Context
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.live.admission import Admission
from reshape_controller.live.control import Control
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.live.recovery import recover
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.store.protocol import Store

LEFT_OUT = (
    r"/v1/events",
    r"/v1/session",
    r"/v1/session/links",
    r"/v1/state",
    r"/metrics",
    r"/readyz",
)
"""Paths that need a daemon."""


@dataclass(frozen=True, slots=True)
class PastSession:
    """The session of the reader of a past run: nothing can be changed."""

    user: str = "reader"
    role: str = "viewer"
    csrf: str = ""
    past: bool = True


class Session(Handler):
    """GET the reader's session."""

    def get(self) -> None:
        self.answer(PastSession())


class PastClock:
    """The time at which the run ended."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def now_s(self) -> float:
        """The end of the run, in Unix seconds; of a replay, in seconds since its begin."""
        return self._at_s

    def not_before(self, at_s: float) -> None:
        """Leave the time as it is."""


class NoPolicy:
    """The policy of a run that is over decides nothing more."""

    name = "none"

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the empty plan."""
        return Plan()


def read_only(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return the routes with handlers that take GET alone; any other method is answered 405."""
    return tuple(
        (pattern, type(handler.__name__, (handler,), {"SUPPORTED_METHODS": ("GET",)}))
        for pattern, handler in routes
    )


def past_routes() -> tuple[Route, ...]:
    """Return the routes of a past run."""
    kept = tuple(
        route for route in ROUTES if route[0] not in LEFT_OUT and "/sidecar/" not in route[0]
    )
    return read_only((*kept, (r"/v1/session", Session), *PAGE_ROUTES))


async def past_context(store: Store, logs: Path | None, token: str) -> Context:
    """Return the context over an open store. ``logs``: the folder of the jobs' folders; None:
    there are no logs. ``token``: the reader's. Raises StoreError."""
    recovered = await recover(store)
    engine, end_s = recovered.engine, recovered.engine.state.now_s
    clock = PastClock(end_s)
    loop = Loop(store, Settings(NoPolicy()), clock)
    loop.engine, loop.problem = engine, ""
    loop.journal.take_over(recovered)
    hub = SidecarHub(loop.post, clock.now_s, clock.now_s)
    admission = Admission(lambda: loop.engine.state, lambda spec: ())
    control = Control(loop, admission, _log_folder(logs), hub.observed, lambda job: "")
    return Context(
        control,
        hub,
        Tokens(token.encode()),
        Identities(lambda: token),
        host_names(LOOPBACK),
        Metrics(),
        TimelineReader(),
        clock,
    )


def _log_folder(logs: Path | None) -> Callable[[Job], Path | None]:
    def folder(job: Job) -> Path | None:
        return None if logs is None else logs / job.id / f"attempt-{job.attempt}" / "logs"

    return folder
