"""Jobs over HTTP: submit, list, look at, cancel, pause, resume, pin; history and decisions.

Does: parse, call ``Control`` or the store, render. A request is answered after its append.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from reshape_controller.access.identity import Role
from reshape_controller.access.rights import lists_all
from reshape_controller.access.submission import owned
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Job, JobSpec, JobState
from reshape_controller.http.base import LIMIT_MAX, Handler, body_json, body_text
from reshape_controller.http.errors import bad_request
from reshape_controller.http.json_text import to_json
from reshape_controller.http.overtaking import goes_ahead, newest_ahead
from reshape_controller.http.render import (
    decision_view,
    event_view,
    job_view,
    jobs_in,
    public_view,
    service_view,
)
from reshape_controller.records import from_json, from_yaml, load_json, parse_record
from reshape_controller.records.array import members
from reshape_controller.store.protocol import JobRow
from reshape_gpu.overview import Overtaking
from reshape_gpu.values import ArrayJobs, Decisions, History, JobPage, JobView, Series

KEY_HEADER = "Idempotency-Key"
KEY_CHARS_MAX = 200
MEMBERS_AT_ONCE = 10
VIEWS_AT_ONCE = 10
"""Views of jobs between which the rest of the daemon goes on."""
FEW_VIEWS = 2
"""Views that take no turn."""
QUEUED = (JobState.SUBMITTED, JobState.INITIALIZED)
"""States of a job that waits for GPUs, or is about to get some."""
OLDEST, NEWEST = "oldest", "newest"
"""The orders of a list, by what comes first; the first is the default."""
NAME_PATTERN = r"[A-Za-z0-9._*?-]{1,128}"
STARS_MAX = 3
"""Stars of a pattern: the steps of a server's regular expression grow with their power."""


class JobHandler(Handler):
    """Base of the handlers that show jobs."""

    def view(self, row: JobRow) -> JobView:
        """The view of a row, with its SideCar's newest report and its container's problem; only
        the public part of it if the job belongs to another user."""
        control = self.context.control
        view = replace(job_view(row), **self._of_now(row))
        if not self.owns(row):
            return public_view(view)
        problem = control.policy_problem_of(row.job) if row.job is not None else ""
        if problem:
            return replace(view, reason=problem)
        if row.job is None or not row.job.attempt:
            return view
        folder = control.log_folder(row.job)
        where = str(folder) if folder is not None else None
        observed, at_s = control.observed(row.id), self.context.hub.progress_at_s(row.id)
        view = job_view(row, observed, where, control.trouble(row.job), at_s)
        not_larger = control.why_not_larger(row.id) or None
        return replace(view, not_larger=not_larger, **self._of_now(row))

    def _of_now(self, row: JobRow) -> dict[str, Any]:
        """Fields of a view that change although nothing happens to the job."""
        fields = dict(vars(self.context.control.expectation(row.id)))
        now_s = self.context.clock.now_s()
        if (account := self.context.control.served(row.id, now_s)) is not None:
            fields["served"] = tuple(service_view(each) for each in account)
            fields["served_until_s"] = now_s
        return fields

    async def overtaking(self, job: Job, ahead: Iterable[tuple[float, Job]]) -> Overtaking | None:
        """The newest start of a later job while this one of the author waits, as the author may
        see it. ``ahead``: of ``goes_ahead``. Raises StoreError."""
        if job.hand_over is not None or not self.owns_jobs_of(job.spec.user):
            return None
        found = newest_ahead(job, ahead)
        if found is None:
            return None
        at_s, other = found
        reason = ""
        if self.owns_jobs_of(other.spec.user):
            reason = await self.context.start_reasons.of(self.context.control.store, other.id, at_s)
        elif not lists_all(self.identity, self.context.identities.users_see_all):
            return None
        return Overtaking(other.id, other.spec.name, at_s, reason)

    @property
    def looks(self) -> bool:
        """Whether a record's errors may say which paths exist on this machine."""
        return self.identity.role is Role.OPERATOR

    def owned(self, spec: JobSpec) -> JobSpec:
        """Return a submitted record with its owner. Raises Denied."""
        return owned(spec, self.identity, self.context.identities.uids(), self.user())


class Jobs(JobHandler):
    """POST a record (JSON, or YAML by content type); GET a page of jobs."""

    async def post(self) -> None:
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip()
        parse = from_yaml if kind in ("application/yaml", "text/yaml") else from_json
        spec = self.owned(parse(body_text(self.body()), looks=self.looks))
        job = await self.context.control.submit(spec, self._key())
        self.set_header("Location", f"/v1/jobs/{job}")
        self.answer(self.view(await self.row(job)), 201)

    def _key(self) -> str:
        """Return the key by which a repeat of this submission is known; empty without one."""
        key = self.request.headers.get(KEY_HEADER, "")
        if len(key) > KEY_CHARS_MAX:
            what = f"{KEY_HEADER} has {len(key)} characters, more than {KEY_CHARS_MAX}"
            raise bad_request(what, f"header {KEY_HEADER}", "send a shorter one, such as a UUID")
        return key

    async def get(self) -> None:
        limit = self.count("limit", 100, 1, LIMIT_MAX)
        if limit <= FEW_VIEWS:
            return await self._list(limit)
        async with self.context.room.turn(self.identity.name):
            await self._list(limit)

    async def _list(self, limit: int) -> None:
        page = await self.context.control.store.jobs(
            limit=limit,
            after=self.get_query_argument("after", None),
            states=self._states(),
            user=self.listed_user(),
            name=self._pattern(),
            newest=self._is_newest_first(),
        )
        texts = []
        for row in page.rows:
            texts.append(to_json(replace(self.view(row), evaluations=())))
            if len(texts) % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # the rest of the daemon goes on
        head, tail = to_json(JobPage((), page.total, page.next_after)).split("[]", 1)
        self.answer_text(f"{head}[{', '.join(texts)}]{tail}")

    def _is_newest_first(self) -> bool:
        order = self.get_query_argument("order", OLDEST)
        if order not in (OLDEST, NEWEST):
            what = f"{order!r:.80} is no order of jobs"
            raise bad_request(what, "query order", f"use {OLDEST} or {NEWEST}")
        return order == NEWEST

    def _pattern(self) -> str | None:
        name = self.get_query_argument("name", None)
        if name is not None and not re.fullmatch(NAME_PATTERN, name):
            what = f"{name!r:.80} is no pattern of names"
            raise bad_request(what, "query name", "use characters of names, * and ?")
        if name is not None and name.count("*") > STARS_MAX:
            what = f"{name!r:.80} has more than {STARS_MAX} stars"
            raise bad_request(what, "query name", "leave some out, or look through all jobs")
        return name

    def _states(self) -> tuple[JobState, ...]:
        names = [n for text in self.get_query_arguments("state") for n in text.split(",") if n]
        known = {state.value: state for state in JobState}
        known["paused"] = JobState.HALTED
        unknown = [name for name in names if name not in known]
        if unknown:
            raise bad_request(
                f"unknown job state {unknown[0]!r}", "query state", f"use one of {', '.join(known)}"
            )
        return tuple(known[name] for name in names)


class Arrays(JobHandler):
    """POST a record with ``array``: all of its members are submitted, or none."""

    async def post(self) -> None:
        record = load_json(body_text(self.body()))
        specs = []
        async with self.context.room.turn(self.identity.name):
            for member in members(record if isinstance(record, dict) else {}):
                specs.append(self.owned(parse_record(member, looks=self.looks)))
                if len(specs) % MEMBERS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # the rest of the daemon goes on
        self.answer(ArrayJobs(await self.context.control.submit_all(specs)), 201)


class Trials(JobHandler):
    """POST a record: what would happen if it were submitted."""

    async def post(self) -> None:
        spec = self.owned(from_json(body_text(self.body()), looks=self.looks))
        now_s = self.context.clock.now_s()
        found = await self.context.control.try_out(self.identity.name, spec, now_s)
        if not lists_all(self.identity, self.context.identities.users_see_all):
            found = replace(found, changes=())
        self.answer(found)


class OneJob(JobHandler):
    async def get(self, key: str) -> None:
        row = await self.row(key)
        view, job = self.view(row), row.job
        if job is not None and not job.gpus and job.state in QUEUED:
            ahead = goes_ahead(self.context.control.live_jobs())
            view = replace(view, overtaken_by=await self.overtaking(job, ahead))
        self.answer(view)


class JobAction(JobHandler):
    """POST cancel, pause (older: halt) or resume."""

    async def post(self, key: str, action: str) -> None:
        control = self.context.control
        ask = {
            "cancel": control.cancel,
            "pause": control.halt,
            "halt": control.halt,
            "resume": control.resume,
        }
        job = await ask[action](key, self.user())
        self.answer(self.view(await self.row(job)))


class JobPin(JobHandler):
    """POST the only size that a job may have; null allows all its sizes again."""

    async def post(self, key: str) -> None:
        body = body_json(self.body())
        if not isinstance(body, dict) or list(body) != ["size"]:
            raise bad_request('the body is not {"size": N} or {"size": null}', "body")
        job = await self.context.control.pin(key, body["size"], self.user())
        self.answer(self.view(await self.row(job)))


class JobHistory(JobHandler):
    async def get(self, key: str) -> None:
        row = await self.row(key)
        limit = self.count("limit", LIMIT_MAX, 1, LIMIT_MAX)
        entries = await self.context.control.store.history(row.id, limit=limit)
        self.answer(History(tuple(map(event_view, entries))))


class JobSeries(JobHandler):
    """GET how the training of a job went, from the reports that are in the log."""

    async def get(self, key: str) -> None:
        row = await self.row(key)
        points = await self.context.timeline.series(self.context.control.store, row.id)
        self.answer(Series(row.id, points))


class JobDecisions(JobHandler):
    """GET the decisions about a job, with the options that were evaluated."""

    async def get(self, key: str) -> None:
        row = await self.row(key)
        limit = self.count("limit", 100, 1, LIMIT_MAX)
        store = self.context.control.store
        decisions = await store.decisions(row.id, limit=limit)
        others = {job: None for decision in decisions for job in jobs_in(decision)}
        rows = [await store.job(job) for job in others]
        names = {other.id: other.name for other in rows if other is not None}
        resized = {target.job: None for each in decisions for target in each.plan.targets}
        histories = {job: await store.history(job, limit=LIMIT_MAX) for job in resized}
        views = (decision_view(decision, names, histories) for decision in decisions)
        self.answer(Decisions(tuple(views)))
