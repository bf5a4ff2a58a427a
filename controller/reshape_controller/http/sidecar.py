"""The SideCars' long poll: observed state in, desired state out.

Does: checks the attempt's token, so that a SideCar speaks for its own attempt only; parses the
report strictly; answers with the desired state of ``SidecarHub``.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus

from reshape_controller.access.identity import Identity, Role
from reshape_controller.http.base import Handler, body_text
from reshape_controller.http.errors import ApiError, ErrorBody, bad_request
from reshape_controller.live.sidecar_hub import HOLD_MAX_S
from reshape_controller.records.limits import WORKERS_MAX
from reshape_sidecar import codec
from reshape_sidecar.wire import (
    LEVEL_HEADER,
    LEVEL_PINS,
    WIRE_LEVEL,
    WIRE_VERSION,
    Desired,
    Observed,
)
from reshape_sidecar.wire_levels import level_in

ESCAPE = "\\u"
"""Begins, in JSON, a character that UTF-8 may not have: half of one."""


class SideCar(Handler):
    """POST /v1/sidecar/JOB/ATTEMPT?wait_s=N&worker=K."""

    _exchange: asyncio.Task[Desired | None] | None = None

    def identify(self) -> Identity | None:
        job, attempt = self.path_args
        token = self.bearer().decode("utf-8", errors="replace")
        if not self.context.tokens.valid(job, int(attempt), token, self._worker()):
            return None
        return Identity(f"{job}/{attempt}", Role.SIDECAR)

    def unidentified(self) -> ApiError:
        job, attempt = self.path_args
        worker = self._worker()
        whose = f"worker {worker} of attempt" if worker else "attempt"
        message = f"the token does not belong to {whose} {attempt} of job {job}"
        return ApiError(401, ErrorBody("unauthorized", message, "header Authorization"))

    async def permit(self) -> None:
        """Refuse a plain report of a SideCar that would pin the key; one of an earlier release
        goes on as before. Raises ApiError."""
        is_plain = self.context.pins_key and self.request.protocol != "https"
        if is_plain and self._level() >= LEVEL_PINS:
            what = "SideCars report by TLS, because plain HTTP shows an attempt's token to others"
            hint = "start the job again; or give sidecar_tls: off until it has ended"
            raise ApiError(403, ErrorBody("plain-http", what, "", hint))
        await super().permit()

    async def post(self, job: str, attempt: str) -> None:
        observed = _report(body_text(self.body()))
        if (observed.job, observed.attempt) != (job, int(attempt)):
            raise bad_request(f"the report is of attempt {observed.attempt} of {observed.job}")
        if observed.worker != self._worker():
            raise bad_request(f"the report is of worker {observed.worker}", "worker")
        if observed.version != WIRE_VERSION:
            raise bad_request(
                f"wire version {observed.version}; this coordinator speaks {WIRE_VERSION}",
                "version",
            )
        wait_s = self.number("wait_s", 0.0, 0.0, HOLD_MAX_S)
        self.set_header(LEVEL_HEADER, str(WIRE_LEVEL))
        try:
            desired = await self._exchanged(job, int(attempt), observed, wait_s)
        except asyncio.CancelledError:
            return
        if desired is None:
            self.set_status(HTTPStatus.NO_CONTENT)
            return
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(codec.dumps(desired))

    async def _exchanged(
        self, job: str, attempt: int, observed: Observed, wait_s: float
    ) -> Desired | None:
        """Take the report, and return the answer once there is one. Raises ApiError if there is no
        room to hold it; the report counts all the same."""
        with contextlib.ExitStack() as held:
            has_room = wait_s == 0 or held.enter_context(self.context.room.hold_poll(self.share()))
            wait_s = wait_s if has_room else 0.0
            exchange = self.context.hub.exchange(job, attempt, observed, wait_s, self._level())
            self._exchange = asyncio.ensure_future(exchange)
            desired = await self._exchange
        if not has_room and (desired is None or not _is_news(desired, observed)):
            what = "more polls wait than this controller has connections for"
            raise ApiError(
                429, ErrorBody("too-many-requests", what, "query wait_s", "try again"), 1
            )
        return desired

    def share(self) -> str:
        """Each worker has a share of its own."""
        own = super().share()
        return own if self._identity is None else f"{own}/{self._worker()}"

    def _level(self) -> int:
        """Return the level of the SideCar; raises ApiError if its header is no number."""
        try:
            return level_in(self.request.headers.get(LEVEL_HEADER))
        except ValueError:
            raise bad_request("it is no whole number", f"header {LEVEL_HEADER}") from None

    def _worker(self) -> int:
        return self.count("worker", 0, 0, WORKERS_MAX)

    def on_connection_close(self) -> None:
        """Cancel the exchange: the SideCar hung up, so its answer cannot be delivered."""
        super().on_connection_close()
        if self._exchange is not None:
            self._exchange.cancel()


def _report(text: str) -> Observed:
    """Return the report in a body. Raises CodecError and ApiError."""
    observed = codec.loads(Observed, text)
    if ESCAPE in text:
        try:
            codec.dumps(observed).encode()
        except UnicodeEncodeError as error:
            raise bad_request(f"a text has half a character ({error.reason})", "body") from None
    return observed


def _is_news(desired: Desired, observed: Observed) -> bool:
    """Whether an answer says more than the report."""
    return (desired.epoch, desired.generation) != (observed.epoch, observed.generation)
