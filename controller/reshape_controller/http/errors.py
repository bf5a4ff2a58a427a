"""Errors as the API answers them: ``{code, message, path, hint}`` with an HTTP status.

Does: maps the errors of the layers below, each in one place. A traceback, or a path of the program,
is not shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from reshape_controller.access.sessions import SessionNotEnded
from reshape_controller.access.submission import Denied
from reshape_controller.core.errors import ReshapeError, UnknownGpu, UnknownHost, UnknownJob
from reshape_controller.core.model import FieldError
from reshape_controller.live.control import Conflict, NotReady, Refused
from reshape_controller.live.sidecar_hub import UnknownAttempt
from reshape_controller.live.trial_process import TooManyTrials, TrialFailed
from reshape_controller.live.user_bounds import TooMuch
from reshape_controller.records import RecordInvalid
from reshape_controller.store.protocol import StoreError, UnknownPage
from reshape_profiles.loader import ProfileError
from reshape_sidecar.codec import CodecError


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The body of an error."""

    code: str
    message: str
    path: str = ""
    hint: str = ""
    errors: tuple[FieldError, ...] = ()
    """Each problem of a record; ``path``, ``message`` and ``hint`` are those of the first."""


class ApiError(Exception):
    """An error to answer a request with. ``status`` is the HTTP status; ``again_after_s``: when the
    same request may be sent again; 0 if that is not known."""

    def __init__(self, status: int, body: ErrorBody, again_after_s: int = 0) -> None:
        super().__init__(body.message)
        self.status = status
        self.body = body
        self.again_after_s = again_after_s


class TooSoon(ApiError):
    """An identity asks too often; it is refused until it may ask again."""


def bad_request(message: str, path: str = "", hint: str = "") -> ApiError:
    return ApiError(400, ErrorBody("bad-request", message, path, hint))


def not_found(message: str, hint: str = "") -> ApiError:
    return ApiError(404, ErrorBody("not-found", message, "", hint))


def unavailable(code: str, text: str) -> ApiError:
    """The error of a request that cannot be served now; a remedy in ``text`` becomes the hint."""
    what, _, remedy = text.partition("; remedy: ")
    return ApiError(503, ErrorBody(code, what, "", remedy))


def rejected(errors: tuple[FieldError, ...]) -> ApiError:
    """The error of an invalid record, with each problem."""
    first = errors[0] if errors else FieldError("", "cannot be accepted")
    return ApiError(422, ErrorBody("rejected", first.message, first.path, first.hint, errors))


def _first(error: Exception) -> str:
    """The error's text without its remedy."""
    return str(error).partition("; ")[0]


def api_error(error: Exception) -> ApiError | None:
    """Map an error of a layer below to the API's; None for a defect."""
    match error:
        case ApiError():
            return error
        case Refused() | RecordInvalid() | Denied():
            return rejected(error.errors)
        case ProfileError():
            hint = "docs/policies.md describes the format of profiles"
            return rejected((FieldError(error.path, error.message, hint),))
        case NotReady():
            return unavailable("not-ready", str(error))
        case Conflict():
            return ApiError(409, ErrorBody("conflict", str(error), "", error.hint))
        case TooManyTrials():
            what, _, remedy = str(error).partition("; ")
            return ApiError(429, ErrorBody("too-many-requests", what, "", remedy), 1)
        case TooMuch():
            what, _, remedy = str(error).partition("; ")
            body = ErrorBody("too-many-requests", what, "", remedy)
            return ApiError(429, body, math.ceil(error.wait_s))
        case TrialFailed():
            what, _, remedy = str(error).partition("; ")
            return ApiError(503, ErrorBody("trial-failed", what, "", remedy))
        case UnknownJob():
            return not_found(_first(error), "reshape get lists the jobs")
        case UnknownHost():
            return not_found(str(error), "reshape gpus lists the hosts")
        case UnknownGpu():
            return not_found(str(error), "reshape gpus lists the GPUs")
        case UnknownAttempt():
            return ApiError(410, ErrorBody("unknown-attempt", str(error)))
        case CodecError():
            return bad_request(error.message, error.path)
        case UnknownPage():
            return bad_request(_first(error), "query after", "start again at the first page")
        case SessionNotEnded():
            return unavailable("session-not-ended", str(error))
        case StoreError():
            return unavailable("store-unavailable", str(error))
        case ReshapeError():
            return ApiError(409, ErrorBody("refused", str(error)))
    return None
