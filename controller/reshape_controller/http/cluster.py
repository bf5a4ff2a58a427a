"""Handlers for GPUs, hosts, profiles of job types, the timeline, and the daemon's own state.

Does: parse, call ``Control`` or the store, render.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from reshape_controller.access.rights import lists_all
from reshape_controller.core.model import HostId
from reshape_controller.http.base import BODY_BYTES_MAX, Gate, Handler, body_json
from reshape_controller.http.errors import bad_request, unavailable
from reshape_controller.http.json_text import to_json
from reshape_controller.http.metrics import Present
from reshape_controller.http.openapi import version
from reshape_controller.http.profile_views import ProfileList, ProfilesRecorded
from reshape_controller.http.render import gpu_view, host_view
from reshape_controller.http.timeline import SPANS_MAX
from reshape_controller.http.timeline_window import merged, until
from reshape_controller.store.protocol import Store
from reshape_gpu.usage import By
from reshape_gpu.values import GpuList, GpuView, Health, HostList, IdentityView, StateView, Status
from reshape_profiles.loader import parse

TOTALS_WAIT_S = 2.0
"""Longest wait of a scrape for figures from the log; it shows what was read until then."""


class Profiles(Handler):
    """GET all profiles; POST a document in the format of a file of profiles."""

    body_bytes_max = 2 * BODY_BYTES_MAX

    async def get(self) -> None:
        async with self.context.room.turn(self.identity.name):
            found = ProfileList(await self.context.control.store.profiles())
            text = await asyncio.to_thread(to_json, found)
        self.answer_text(text)

    async def post(self) -> None:
        profiles = parse(body_json(self.body()), "body").profiles
        recorded = await self.context.control.record(profiles)
        same = tuple(p.job_type for p in profiles if p.job_type not in recorded)
        self.answer(ProfilesRecorded(recorded, same))


async def _gpus(store: Store, user: str | None = None) -> tuple[GpuView, ...]:
    """The views of all GPUs. ``user``: jobs of others have no name there; None: all have."""
    gpus, hosts = await store.gpus(), {host.id: host for host in await store.hosts()}
    keys = {key: None for gpu in gpus for key in (gpu.owner, gpu.promised_to) if key}
    rows = [await store.job(key) for key in keys]
    found = [row for row in rows if row is not None and user in (None, row.user)]
    names: dict[str, str] = {row.id: row.name for row in found}
    views = tuple(gpu_view(gpu, hosts.get(gpu.host), names) for gpu in gpus)
    return views if user is None else tuple(_without_others(view, names) for view in views)


def _without_others(view: GpuView, names: Mapping[str, str]) -> GpuView:
    """The view without ids of jobs that are not in ``names``; a reason can have one in its text."""
    owner = view.owner if view.owner in names else None
    promised_to = view.promised_to if view.promised_to in names else None
    return replace(view, owner=owner, promised_to=promised_to, reason="")


class Gpus(Handler):
    async def get(self) -> None:
        everything = lists_all(self.identity, self.context.identities.users_see_all)
        user = None if everything else self.identity.name
        async with self.context.room.turn(self.identity.name):
            found = await _gpus(self.context.control.store, user)
        self.answer(GpuList(found, self.context.containment.hold.value))


class GpuClear(Handler):
    """POST: a quarantined GPU is free again."""

    async def post(self, gpu: str) -> None:
        await self.context.control.clear(gpu, self.user())
        (cleared,) = (view for view in await _gpus(self.context.control.store) if view.id == gpu)
        self.answer(cleared)


class Hosts(Handler):
    async def get(self) -> None:
        hosts = await self.context.control.store.hosts()
        self.answer(HostList(tuple(host_view(host) for host in hosts)))


class HostAction(Handler):
    """POST drain or undrain."""

    async def post(self, host: str, action: str) -> None:
        control = self.context.control
        await (control.drain if action == "drain" else control.undrain)(host, self.user())
        hosts = {each.id: each for each in await control.store.hosts()}
        self.answer(host_view(hosts[HostId(host)]))


class TimelinePage(Handler):
    async def get(self) -> None:
        async with self.context.room.turn(self.identity.name):
            await self._answer_timeline()

    async def _answer_timeline(self) -> None:
        from_s = self.number("from_s", 0.0, 0.0, 1e12)
        timeline = await self.context.timeline.read(self.context.control.store, from_s)
        if any(job.ended_at_s is None for job in timeline.jobs):
            timeline = replace(timeline, to_s=max(timeline.to_s, self.context.clock.now_s()))
        timeline = until(timeline, self.number("to_s", timeline.to_s, from_s, 1e12))
        most = self.count("max_spans", 0, 0, SPANS_MAX)
        found = await asyncio.to_thread(merged, timeline, most) if most else timeline
        self.answer_text(await asyncio.to_thread(to_json, found))


class UsagePage(Handler):
    async def get(self) -> None:
        name = self.get_query_argument("by", By.USER.value)
        if name not in list(By):
            raise bad_request(
                f"{name!r} is no kind of row", "query by", f"use one of {', '.join(By)}"
            )
        now_s = self.context.clock.now_s()
        from_s = self.number("from_s", 0.0, 0.0, 1e12)
        to_s = min(now_s, self.number("to_s", now_s, from_s, 1e12))
        timeline, store = self.context.timeline, self.context.control.store
        by, user = By(name), self.listed_user()
        async with self.context.room.turn(self.identity.name):
            self.answer(await timeline.usage(store, by, from_s, max(from_s, to_s), user))


class StatePage(Handler):
    async def get(self) -> None:
        async with self.context.room.turn(self.identity.name):
            self.answer(StateView(await self.context.control.state()))


class MetricsPage(Handler):
    async def get(self) -> None:
        async with self.context.room.turn(self.share()):
            await self._answer_figures()

    async def _answer_figures(self) -> None:
        control, metrics = self.context.control, self.context.metrics
        leadership = self.context.leadership
        held = leadership is None or leadership.held
        present = Present(
            control.ready()[0],
            held,
            self.context.clock.now_s(),
            control.unreachable(),
            control.late(),
            control.store_lag_s(),
            control.since_snapshot(),
            bool(control.policy_problem()),
            control.holders() if self.shows_names() else None,
            await self.context.timeline.totals(control.store, TOTALS_WAIT_S),
        )
        text = await metrics.text(control.store, present)
        self.set_header("Content-Type", metrics.content_type)
        self.finish(text)

    def shows_names(self) -> bool:
        """Whether the reader may see the names of all jobs."""
        who = self._identity
        return who is not None and lists_all(who, self.context.identities.users_see_all)


class ScrapedMetrics(MetricsPage):
    """The same on the socket for pods. A cluster's Prometheus asks under any host name; without a
    token it gets the figures that name no job and no user."""

    def authorize(self) -> None:
        """Let a request without a token pass; decide about any other. Raises ApiError."""
        if self.bearer():
            super().authorize()

    def check_host(self) -> None:
        """Let every host name pass."""


class StatusPage(Handler):
    async def get(self) -> None:
        control, leadership = self.context.control, self.context.leadership
        ready, reason = control.ready()
        epoch, seq = control.position()
        held = self.context.containment
        status = Status(
            *("leader", ready, version(), reason, epoch, seq),
            containment=held.hold.value,
            containment_reason=held.reason,
            isolation=self.context.isolation,
            waits_for=self.waits_for(),
        )
        if leadership is not None:
            status = replace(
                status,
                name=leadership.name,
                leader=leadership.holder,
                lease_held=leadership.held,
            )
        self.answer(status)


class WhoAmI(Handler):
    """GET the identity of the token."""

    def get(self) -> None:
        who, caps = self.identity, self.identity.caps
        values = (who.uid, caps.priority, caps.pin, caps.may_restart)
        self.answer(IdentityView(who.name, who.role.value, *values))


class Healthz(Gate):
    """GET: the process answers. It needs no token, and shows nothing else."""

    def get(self) -> None:
        self.answer(Health("ok"))


class Readyz(Handler):
    """GET: the daemon accepts requests; the log was recovered and can be written."""

    def get(self) -> None:
        ready, reason = self.context.control.ready()
        if not ready:
            raise unavailable("not-ready", f"not ready: {reason}")
        self.answer(Health("ready", self.waits_for()))
