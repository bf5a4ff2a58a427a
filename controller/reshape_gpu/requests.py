"""The requests of the API that a client sends, as values: path, query, body, and the answer's type.

A test compares each with the OpenAPI document. Pure.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from reshape_gpu import page_login, values
from reshape_gpu.errors import SettingError
from reshape_gpu.usage import Usage
from reshape_gpu.values import JobView

T_co = TypeVar("T_co", covariant=True)

KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Request(Generic[T_co]):
    """A request. ``kind`` is the type of the answer's JSON; Response: the answer as it is."""

    method: str
    path: str
    kind: type[T_co]
    query: Mapping[str, object] = field(default_factory=dict)
    """Arguments; those that are None are not sent."""
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Path and query, quoted."""
        given = {key: value for key, value in self.query.items() if value is not None}
        query = f"?{urllib.parse.urlencode(given)}" if given else ""
        return urllib.parse.quote(self.path) + query

    @property
    def data(self) -> bytes:
        return b"" if self.body is None else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Response:
    """A successful response: the raw body, and the headers in lower case."""

    body: bytes
    headers: Mapping[str, str]


def job(key: str) -> Request[JobView]:
    return Request("GET", _job(key), JobView)


def jobs(
    limit: int | None = None,
    after: str | None = None,
    state: str | None = None,
    user: str | None = None,
    name: str | None = None,
) -> Request[values.JobPage]:
    query = {"limit": limit, "after": after, "state": state, "user": user, "name": name}
    return Request("GET", "/v1/jobs", values.JobPage, query)


def submit(record: Mapping[str, object], key: str | None = None) -> Request[JobView]:
    """``key``: goes into a header. Raises SettingError if a header cannot hold it."""
    if key is not None and not (key.isascii() and key.isprintable()):
        what = f"{key!r:.80} cannot be the key of a submission"
        raise SettingError.of(what, "argument key", "use ASCII letters, digits and signs")
    headers = {} if key is None else {KEY_HEADER: key}
    return Request("POST", "/v1/jobs", JobView, body=record, headers=headers)


def submit_array(record: Mapping[str, object]) -> Request[values.ArrayJobs]:
    return Request("POST", "/v1/arrays", values.ArrayJobs, body=record)


def trial(record: Mapping[str, object]) -> Request[values.Trial]:
    return Request("POST", "/v1/trials", values.Trial, body=record)


def act(key: str, action: str) -> Request[JobView]:
    """``action``: cancel, pause or resume."""
    return Request("POST", f"{_job(key)}/{action}", JobView)


def pin(key: str, size: int | None) -> Request[JobView]:
    return Request("POST", f"{_job(key)}/pin", JobView, body={"size": size})


def history(key: str, limit: int | None = None) -> Request[values.History]:
    return Request("GET", f"{_job(key)}/history", values.History, {"limit": limit})


def decisions(key: str, limit: int | None = None) -> Request[values.Decisions]:
    return Request("GET", f"{_job(key)}/decisions", values.Decisions, {"limit": limit})


def logs(
    key: str,
    file: str,
    *,
    tail: int | None = None,
    offset: int | None = None,
    attempt: int | None = None,
    wait_s: float = 0.0,
) -> Request[Response]:
    query = {"file": file, "tail": tail, "offset": offset, "attempt": attempt, "wait_s": wait_s}
    return Request("GET", f"{_job(key)}/logs", Response, query)


def usage(from_s: float | None, to_s: float | None, by: str, user: str | None) -> Request[Usage]:
    query = {"from_s": from_s, "to_s": to_s, "by": by, "user": user}
    return Request("GET", "/v1/usage", Usage, query)


def gpus() -> Request[values.GpuList]:
    return Request("GET", "/v1/gpus", values.GpuList)


def clear(gpu: str) -> Request[values.GpuView]:
    return Request("POST", f"/v1/gpus/{gpu}/clear", values.GpuView)


def drain(host: str, action: str) -> Request[values.HostView]:
    """``action``: drain or undrain."""
    return Request("POST", f"/v1/hosts/{host}/{action}", values.HostView)


def hosts() -> Request[values.HostList]:
    return Request("GET", "/v1/hosts", values.HostList)


def status() -> Request[values.Status]:
    return Request("GET", "/v1/status", values.Status)


def whoami() -> Request[values.IdentityView]:
    return Request("GET", "/v1/whoami", values.IdentityView)


def page_link() -> Request[page_login.PageLink]:
    return Request("POST", "/v1/session/links", page_login.PageLink)


def _job(key: str) -> str:
    return f"/v1/jobs/{key}"
