"""The agent's connection to the GPU Coordinator: it dials out, and nothing dials in.

Does: holds one long poll, reports changes at once, and logs a failure once and the recovery once.
Training goes on if an answer is missing, refused or invalid. Proxies in the environment are not
used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from reshape_sidecar import codec, limits
from reshape_sidecar.agent import pinned_key
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.wire import LEVEL_HEADER, WIRE_LEVEL, Desired, Observed
from reshape_sidecar.wire_levels import at_level, level_in

log = logging.getLogger("agent")
UNKNOWN_ATTEMPT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class CoordinatorLink:
    """The long poll and the reports of one attempt.

    ``observe`` returns the newest state with a new sequence number; ``learn`` takes a desired state
    and returns whether it is new; ``token`` reads the bearer token.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        *,
        token: Callable[[], str],
        observe: Callable[[], Observed],
        learn: Callable[[Desired], bool],
        on_acknowledged: Callable[[], None],
    ) -> None:
        job = quote(spec.job, safe="")
        self._url = f"{spec.coordinator_url.rstrip('/')}/v1/sidecar/{job}/{spec.attempt}"
        pin = spec.controller_key
        self._tls = pinned_key.context(pin) if pin is not None else None
        self._is_open = pin is not None and urlsplit(self._url).scheme != "https"
        """Whether the URL has no TLS, though a key is pinned."""
        self._worker = f"&worker={spec.worker}" if spec.worker else ""
        self._token = token
        self._observe = observe
        self._learn = learn
        self._on_acknowledged = on_acknowledged
        self._client: AsyncHTTPClient = SimpleAsyncHTTPClient(force_instance=True)
        self._dirty = asyncio.Event()
        self._level = 1
        """Level of the reports that the coordinator knows."""
        self._backoff_s = limits.BACKOFF_MIN_S
        self._not_before_s = 0.0
        """Steady time before which the coordinator wants no request."""
        self._trouble: str | None = None
        self.sequence_acknowledged = -1
        self.unknown_attempt = False
        """True if the coordinator answered that it does not know this attempt (any more)."""

    def push(self) -> None:
        """Report the state as soon as possible."""
        self._dirty.set()

    async def poll_forever(self) -> None:
        """Receive each new desired state; the coordinator holds the answer until there is one."""
        while True:
            if not await self._exchange(limits.POLL_WAIT_S):
                await self._back_off()

    async def push_forever(self) -> None:
        """Report each change, and a heartbeat in between."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.HEARTBEAT_S):
                    await self._dirty.wait()
            self._dirty.clear()
            if not await self._exchange(0.0):
                self._dirty.set()
                await self._back_off()

    async def push_once(self, timeout_s: float) -> None:
        """Send one last report within ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._exchange(0.0)

    async def _exchange(self, wait_s: float) -> bool:
        """Send one request; False if the answer is of no use, so that a pause is due."""
        if self._is_open:
            self._on_failure("the spec pins a key, and this URL is not https; no token is sent")
            return False
        observed = self._observe()
        try:
            request = HTTPRequest(
                f"{self._url}?wait_s={wait_s:g}{self._worker}",
                method="POST",
                headers={
                    "Authorization": f"Bearer {self._token()}",
                    "Content-Type": "application/json",
                    LEVEL_HEADER: str(WIRE_LEVEL),
                },
                # A text that training reports may hold half a character; the rest is still sent.
                body=codec.dumps(at_level(observed, self._level)).encode(errors="replace"),
                connect_timeout=limits.CONNECT_S,
                request_timeout=wait_s + limits.ANSWER_MARGIN_S,
                follow_redirects=False,
                ssl_options=self._tls,
            )
            response = await self._client.fetch(request)
            self._level = level_in(response.headers.get(LEVEL_HEADER))
            nothing = response.code == HTTPStatus.NO_CONTENT
            desired = None if nothing else codec.loads(Desired, response.body)
        except HTTPError as error:
            self.unknown_attempt = error.code in UNKNOWN_ATTEMPT
            self._not_before_s = time.monotonic() + _retry_after_s(error)
            if error.code == HTTPStatus.BAD_REQUEST:
                self._level = 1  # an older coordinator may have taken over
            self._on_failure(f"HTTP {error.code} {error.message}")
            return False
        except (OSError, codec.CodecError, ValueError) as error:
            self.unknown_attempt = False
            self._on_failure(f"{type(error).__name__}: {error}")
            return False
        self._on_success()
        if observed.sequence > self.sequence_acknowledged:
            self.sequence_acknowledged = observed.sequence
            self._on_acknowledged()
        if desired is None:
            return True  # one of several workers that has no desired state yet
        current = (desired.epoch, desired.generation) == (observed.epoch, observed.generation)
        return self._learn(desired) or current or wait_s == 0.0

    async def _back_off(self) -> None:
        pause_s = self._backoff_s * random.uniform(0.5, 1.0)
        await asyncio.sleep(max(pause_s, self._not_before_s - time.monotonic()))
        self._backoff_s = min(self._backoff_s * 2, limits.BACKOFF_MAX_S)

    def _on_failure(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("coordinator %s: %s; training is not touched", self._url, trouble)

    def _on_success(self) -> None:
        self._backoff_s = limits.BACKOFF_MIN_S
        self.unknown_attempt = False
        if self._trouble is not None:
            self._trouble = None
            log.info("coordinator %s answers", self._url)


def _retry_after_s(error: HTTPError) -> float:
    """Return the pause that an answer asks for; 0 without one, and at most our own longest."""
    text = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    return min(float(text), limits.BACKOFF_MAX_S) if text.isascii() and text.isdecimal() else 0.0
