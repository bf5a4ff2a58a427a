"""The table of the API's operations, for its description. ``http.app`` has the handlers."""

from __future__ import annotations

import functools
import re

from reshape_controller.access.rights import Right
from reshape_controller.http import profile_views
from reshape_controller.http.base import Handler
from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.json_text import to_json
from reshape_controller.http.openapi import Operation, document
from reshape_controller.http.timeline import Timeline
from reshape_gpu import page_login, values
from reshape_gpu.overview import Overview
from reshape_gpu.usage import Usage
from reshape_gpu.values import HostView, JobView, Trial

JOB_ACTIONS = ("cancel", "pause", "resume", "halt")

OPERATIONS = (
    Operation(
        "post",
        "/v1/sidecar/{job}/{attempt}",
        "Exchange observed and desired state (SideCars only; bearer is the attempt's token)",
        Right.REPORT,
        body="reshape_sidecar.wire.Observed",
        query=("wait_s", "worker"),
    ),
    Operation(
        "post", "/v1/jobs", "Submit a job", Right.SUBMIT, JobView, body="a job record", success=201
    ),
    Operation(
        "get",
        "/v1/jobs",
        "List jobs",
        Right.LIST,
        values.JobPage,
        query=("limit", "after", "state", "user", "name", "order"),
    ),
    Operation(
        "post",
        "/v1/arrays",
        "Submit a job for each combination of the values of an array: all, or none",
        Right.SUBMIT,
        values.ArrayJobs,
        body="a job record with array",
        success=201,
    ),
    Operation(
        "post",
        "/v1/trials",
        "Say what would happen to a record if it were submitted; nothing changes",
        Right.SUBMIT,
        Trial,
        body="a job record",
    ),
    Operation("get", "/v1/jobs/{key}", "Show a job, by id or name", Right.SEE_JOB, JobView),
    *(
        Operation(
            "post",
            f"/v1/jobs/{{key}}/{action}",
            summary,
            Right.CHANGE_JOB,
            JobView,
            deprecated=deprecated,
        )
        for action, summary, deprecated in (
            ("cancel", "Cancel a job", False),
            ("pause", "Pause a job: save a checkpoint and release its GPUs", False),
            ("resume", "Resume a paused job: queue it again", False),
            ("halt", "Deprecated alias of pause", True),
        )
    ),
    Operation(
        "post",
        "/v1/jobs/{key}/pin",
        "Fix a job's GPU count, or (null) allow all its GPU counts again",
        Right.PIN_JOB,
        JobView,
        body='{"size": N} or {"size": null}',
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/history",
        "History of a job",
        Right.READ_JOB,
        values.History,
        query=("limit",),
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/decisions",
        "Decisions about a job, with the options compared",
        Right.READ_JOB,
        values.Decisions,
        query=("limit",),
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/logs",
        "A log file: its tail, or bytes from an offset; can wait for more",
        Right.READ_JOB,
        query=("file", "tail", "offset", "attempt", "wait_s"),
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/series",
        "Speed, loss and accuracy of a job over time",
        Right.READ_JOB,
        values.Series,
    ),
    Operation(
        "get",
        "/v1/events",
        "Server-sent events: what each record of the log changes, after Last-Event-ID",
        Right.LIST,
        query=("after", "wait_s"),
    ),
    Operation(
        "get",
        "/v1/history",
        "The newest entries of the history of all jobs, hosts and the controller",
        Right.LIST,
        values.RecentHistory,
        query=("limit",),
    ),
    Operation(
        "get",
        "/v1/overview",
        "Counts of GPUs and jobs, the queue, the jobs that run, and the failures of 24 hours",
        Right.LIST,
        Overview,
        query=("lines", "user"),
    ),
    Operation("get", "/v1/gpus", "List GPUs", Right.LOOK, values.GpuList),
    Operation(
        "post",
        "/v1/gpus/{gpu}/clear",
        "Return a quarantined GPU to use",
        Right.OPERATE,
        values.GpuView,
    ),
    Operation("get", "/v1/hosts", "List hosts", Right.LOOK, values.HostList),
    Operation(
        "post",
        "/v1/hosts/{host}/drain",
        "Drain a host: its jobs save and leave",
        Right.OPERATE,
        HostView,
    ),
    Operation(
        "post",
        "/v1/hosts/{host}/undrain",
        "Let jobs start on a host again",
        Right.OPERATE,
        HostView,
    ),
    Operation(
        "get",
        "/v1/profiles",
        "Profiles of job types: as recorded, and as learned from running jobs",
        Right.LOOK,
        profile_views.ProfileList,
    ),
    Operation(
        "post",
        "/v1/profiles",
        "Record profiles; each replaces the recorded profile of its job type",
        Right.OPERATE,
        profile_views.ProfilesRecorded,
        body='{"profile": [...]}, as in a file of profiles',
    ),
    Operation(
        "get",
        "/v1/timeline",
        "GPUs and jobs over time",
        Right.SEE_ALL,
        Timeline,
        query=("from_s", "to_s", "max_spans"),
    ),
    Operation(
        "get",
        "/v1/usage",
        "GPU-seconds by user, job, GPU type, host or job type",
        Right.LIST,
        Usage,
        query=("from_s", "to_s", "by", "user"),
    ),
    Operation(
        "get",
        "/v1/state",
        "The controller's state, for replay --from-live of the same version",
        Right.OPERATE,
        values.StateView,
    ),
    Operation("get", "/v1/openapi.json", "This document", Right.LOOK, dict),
    Operation("get", "/metrics", "Prometheus figures", Right.SCRAPE),
    Operation("get", "/v1/status", "Role and readiness of the daemon", Right.LOOK, values.Status),
    Operation("get", "/v1/whoami", "Identity of the token", Right.SCRAPE, values.IdentityView),
    Operation(
        "get", "/v1/session", "The session of the page's cookie", Right.LOOK, page_login.SessionView
    ),
    Operation(
        "post",
        "/v1/session",
        "Log in: begin a session of the page (no token needed in a header)",
        Right.OPEN,
        page_login.SessionView,
        body='{"token": TEXT} or {"link": TEXT}',
    ),
    Operation(
        "delete",
        "/v1/session",
        "Log out: end the session, in every browser",
        Right.LOOK,
        success=204,
    ),
    Operation(
        "post",
        "/v1/session/links",
        "Make a link that opens one session of this token within a minute",
        Right.LOOK,
        page_login.PageLink,
        success=201,
    ),
    Operation(
        "get", "/healthz", "The process answers (no token needed)", Right.OPEN, values.Health
    ),
    Operation("get", "/readyz", "The daemon accepts requests", Right.SCRAPE, values.Health),
)


def rights_of(pattern: str) -> dict[str, Right]:
    """The right of each method of the paths that ``pattern`` matches, for example
    ``{"GET": Right.LIST}``; empty if no operation describes them."""
    return {
        operation.method.upper(): operation.right
        for operation in OPERATIONS
        if re.fullmatch(pattern, _PART.sub(_example, operation.path))
    }


def templates_of(pattern: str) -> tuple[str, ...]:
    """Return the paths of the operations that ``pattern`` matches, with names for their parts."""
    matching = (
        operation.path
        for operation in OPERATIONS
        if re.fullmatch(pattern, _PART.sub(_example, operation.path))
    )
    return tuple(dict.fromkeys(matching))


_PART = re.compile(r"\{(\w+)\}")


def _example(part: re.Match[str]) -> str:
    return "1" if part[1] == "attempt" else "x"


class OpenApi(Handler):
    def get(self) -> None:
        self.answer_text(_description())


@functools.cache
def _description() -> str:
    return to_json(document(OPERATIONS, ErrorBody))
