"""What an answer means: a value, or an error with a remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from reshape_gpu.errors import (
    BadAnswer,
    ClientError,
    NotFound,
    Problem,
    RecordRejected,
    Refused,
    TooManyRequests,
    Unreachable,
)
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import Target, start_it
from reshape_sidecar import codec

T = TypeVar("T")

_KINDS: dict[int, type[ClientError]] = {
    400: Refused,
    401: Refused,
    403: Refused,
    404: NotFound,
    409: Refused,
    413: Refused,
    422: RecordRejected,
    429: TooManyRequests,
    503: Unreachable,
}


def response(there: Target, status: int, headers: Mapping[str, str], data: bytes) -> Response:
    """Return a successful answer. Raises ClientError for every other."""
    head = {key.lower(): value for key, value in headers.items()}
    if status < 300:
        return Response(data, head)
    error = _refused(there, status, data)
    wait = head.get("retry-after", "")
    if isinstance(error, TooManyRequests) and wait.isascii() and wait.isdecimal():
        error.again_after_s = float(wait)
    raise error


def value(there: Target, request: Request[T], found: Response) -> T | Response:
    """Return the value of an answer, or the answer as it is if the request wants that. Raises
    BadAnswer."""
    if request.kind is Response:
        return found
    try:
        return codec.loads(request.kind, found.body)
    except codec.CodecError as error:
        raise BadAnswer.of(
            f"the daemon's answer does not match this version of reshape ({error})",
            there.url,
            "daemon and command have different versions: restart the daemon",
        ) from None


def unreachable(there: Target, error: Exception) -> Unreachable:
    """Return the error of a request without an answer."""
    why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
    if there.home is None:
        remedy = "check the URL, the network, and at its machine that the daemon runs"
        if type(error).__module__ == "ssl":
            remedy = "if its certificate is your own: reshape login URL --ca FILE"
    elif there.home.has_daemon():  # a second daemon is refused
        remedy = "it runs, but is still starting or waits for its store: see its log"
    else:
        remedy = start_it(there.home)
    return Unreachable.of(f"the daemon cannot be reached: {why}", there.where, remedy)


def now_s(headers: Mapping[str, str]) -> float | None:
    """Return the daemon's time at an answer."""
    try:
        return float(headers["reshape-now"])
    except (KeyError, ValueError):
        return None


def _refused(there: Target, status: int, data: bytes) -> ClientError:
    try:
        body = json.loads(data)
        found = [body, *body.get("errors", [])][1:] or [body]
        problems = [_problem(entry) for entry in found]
    except (ValueError, AttributeError, TypeError, KeyError):
        what = f"the answer is not from a Reshape daemon (HTTP status {status})"
        problems = [Problem(what, there.url, "check which program uses this port")]
    if status == 401:
        problems = [_refused_token(there)]
    if status != 422:
        here = f"the daemon of {there.home.folder}" if there.home is not None else there.where
        problems = [replace(p, where=p.where or here) for p in problems]
    return _KINDS.get(status, BadAnswer)(*problems)


def _refused_token(there: Target) -> Problem:
    remedy = f"{there.token_from} has another daemon's token; give the right --home"
    if there.home is None or there.token_from != str(there.home.token_file):
        remedy = "it is wrong, expired or revoked: ask an operator, then reshape login URL"
    where = f"{there.where}, token from {there.token_from}"
    return Problem("the daemon refuses the token", where, remedy)


def _problem(entry: Any) -> Problem:
    return Problem(str(entry["message"]), str(entry.get("path", "")), str(entry.get("hint", "")))
