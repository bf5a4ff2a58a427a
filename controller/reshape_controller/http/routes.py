"""What the API offers, for its description.

Does: names every operation with what it answers. Never: serves one (``http.app``). State: none.
"""

from __future__ import annotations

from reshape_controller.http import views
from reshape_controller.http.base import Handler
from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import Operation, document
from reshape_controller.http.timeline import Timeline
from reshape_controller.http.views import HostView, JobView

JOB_ACTIONS = ("cancel", "pause", "resume", "halt")

OPERATIONS = (
    Operation(
        "post",
        "/v1/sidecar/{job}/{attempt}",
        "Exchange observed and desired state (SideCars only; bearer is the attempt's token)",
        body="reshape_sidecar.wire.Observed",
        query=("wait_s", "worker"),
    ),
    Operation("post", "/v1/jobs", "Submit a job", JobView, body="a job record", success=201),
    Operation(
        "get", "/v1/jobs", "List jobs", views.JobPage, query=("limit", "after", "state", "user")
    ),
    Operation("get", "/v1/jobs/{key}", "Show a job, by id or name", JobView),
    *(
        Operation("post", f"/v1/jobs/{{key}}/{action}", summary, JobView, deprecated=deprecated)
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
        "Keep a job to one of its sizes, or (null) let it have all of them again",
        JobView,
        body='{"size": N} or {"size": null}',
    ),
    Operation(
        "get", "/v1/jobs/{key}/history", "What happened to a job", views.History, query=("limit",)
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/decisions",
        "What was decided about a job, and what was weighed",
        views.Decisions,
        query=("limit",),
    ),
    Operation(
        "get",
        "/v1/jobs/{key}/logs",
        "A log file: its tail, or bytes from an offset on; can wait for more",
        query=("file", "tail", "offset", "attempt", "wait_s"),
    ),
    Operation("get", "/v1/gpus", "List GPUs", views.GpuList),
    Operation("post", "/v1/gpus/{gpu}/clear", "Give a quarantined GPU back", views.GpuView),
    Operation("get", "/v1/hosts", "List hosts", views.HostList),
    Operation("post", "/v1/hosts/{host}/drain", "Empty a host", HostView),
    Operation("post", "/v1/hosts/{host}/undrain", "Use a host again", HostView),
    Operation(
        "get",
        "/v1/profiles",
        "What is known of job types: what was recorded, and what running jobs taught",
        views.ProfileList,
    ),
    Operation(
        "post",
        "/v1/profiles",
        "Record profiles of job types, each in place of what was recorded of its type",
        views.ProfilesRecorded,
        body='{"profile": [...]}, as in a file of profiles',
    ),
    Operation("get", "/v1/timeline", "Who held which GPU when", Timeline, query=("from_s",)),
    Operation(
        "get",
        "/v1/state",
        "The controller's state, to continue it in virtual time; of one version only",
        views.StateView,
    ),
    Operation("get", "/v1/openapi.json", "This document", dict),
    Operation("get", "/metrics", "Prometheus figures"),
    Operation("get", "/v1/status", "Leader or standby, ready or why not", views.Status),
    Operation("get", "/healthz", "The process answers (no token needed)", views.Health),
    Operation("get", "/readyz", "Requests are taken", views.Health),
)


class OpenApi(Handler):
    def get(self) -> None:
        self.answer(document(OPERATIONS, ErrorBody))
