"""Targets, a job and history entries for tests of notifications."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

from reshape_controller.core.model import Job, JobId
from reshape_controller.core.record import HistoryEntry
from reshape_controller.live.notifications.targets import Event, Target
from tests.support.receiver import SECRET
from tests.support.store_values import SPEC

DEADLINE_S = 100.0
LOOPBACK = (IPv4Network("127.0.0.0/8"),)
ADA = Job(JobId("mnist-1"), replace(SPEC, user="ada", notify=("chat",)), 1, 100.0)


def target(url: str, name: str = "chat", **more: object) -> Target:
    made = Target(name, url, SECRET.encode(), frozenset(Event), 3600.0, LOOPBACK)
    return replace(made, **more)  # type: ignore[arg-type]


def entry(kind: str, at_s: float = 200.0, job: JobId | None = ADA.id) -> HistoryEntry:
    return HistoryEntry(job, at_s, kind, "a text")
