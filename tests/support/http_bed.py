"""The web application in this process, on a real socket, over a real store and loop.

Does: puts the daemon together with coroutines for SideCars, and asks it over TCP. Never: starts a
process; tests of the whole daemon do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from reshape_controller.access.identities import Identities
from reshape_controller.access.sessions import FILE_NAME as SESSIONS_FILE
from reshape_controller.access.sessions import Sessions
from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL, Limits
from reshape_controller.core.model import GpuId, HostId, Job
from reshape_controller.http.app import Server, bind, host_names
from reshape_controller.http.context import Context
from reshape_controller.http.metrics import Metrics
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.policies import make_policy
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.live_fakes import FakeLauncher

TOKEN = "operators-token"
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Answer:
    code: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """A client that may send what no sane client sends."""

    def __init__(
        self, port: int, launcher: FakeLauncher, tokens: Tokens, logs: Path, clock: WallClock
    ) -> None:
        self.port = port
        self.clock = clock
        self.launcher = launcher
        self.tokens = tokens
        self.logs = logs
        self.context: Context
        self._client = AsyncHTTPClient(force_instance=True)

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN, **headers: str
    ) -> Answer:
        """One request. ``body`` that is no text or bytes is sent as JSON."""
        sent = dict(headers)
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}",
            method,
            {name.replace("_", "-"): value for name, value in sent.items()},
            body,
            allow_nonstandard_methods=True,
            request_timeout=DEADLINE_S,
        )
        got = await self._client.fetch(request, raise_error=False)
        return Answer(got.code, got.body, {k.lower(): v for k, v in got.headers.get_all()})

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("POST", path, body, **headers)

    async def raw(self, data: bytes) -> bytes:
        """Send bytes as they are; everything that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        found = await asyncio.wait_for(reader.read(65536), DEADLINE_S)
        writer.close()
        return found

    async def reaches(self, key: str, state: str) -> Any:
        """Wait until a job is in a state."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                job = (await self.get(f"/v1/jobs/{key}")).json
                if job["state"] == state:
                    return job
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def api(
    folder: Path, limits: Limits | None = None, identities: Identities | None = None
) -> AsyncIterator[Api]:
    """A running daemon's inside with four GPUs on the host ``local``."""
    store, launcher = SqliteStore(folder / "store.sqlite"), FakeLauncher()
    await store.open()
    clock = WallClock()
    metrics = Metrics()
    settings = Settings(make_policy("adaptive"), limits=limits or LOCAL)
    loop = Loop(store, settings, clock, stopwatch=metrics)
    monotonic_s = asyncio.get_running_loop().time
    hub = SidecarHub(loop.post, monotonic_s, clock.now_s, lambda: loop.engine.state)
    tokens = Tokens(b"secret")
    launcher.hub = hub
    launch = LaunchSettings("http://127.0.0.1:1", folder / "jobs")
    effects = Effects(launcher, hub, tokens, launch, loop.post)
    admission = Admission(lambda: loop.engine.state, effects.refusals)

    def log_folder(job: Job) -> Path:
        return folder / "logs" / job.spec.name / str(job.attempt)

    control = Control(loop, admission, log_folder, hub.observed, lambda job: "")
    listening = bind("127.0.0.1", 0)
    names = host_names("127.0.0.1")
    identities = identities or Identities(lambda: TOKEN)
    context = Context(control, hub, tokens, identities, names, metrics, TimelineReader(), clock)
    sessions = Sessions(identities, b"secret", folder / SESSIONS_FILE)
    context = replace(context, sessions=sessions)
    server = Server(listening, context)
    await loop.start(effects)
    server.start()
    tasks = [
        asyncio.create_task(loop.run()),
        asyncio.create_task(effects.watch(lambda: loop.engine)),
    ]
    gpus = tuple(GpuId(f"gpu-{number}") for number in range(4))
    await loop.commit(ev.HostAdded(HostId("local"), "testing", gpus))
    found = Api(listening.getsockname()[1], launcher, tokens, folder / "logs", clock)
    found.context = context
    try:
        yield found
    finally:
        await server.stop()
        await context.timeline.stop()
        loop.stop()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await effects.stop()
        await launcher.close()
        await store.close()


RECORD = {"name": "job", "command": ["train"], "framework": "other", "optional_gpus": [2, 4]}


def run(
    folder: Path, test: Callable[[Api], Awaitable[None]], identities: Identities | None = None
) -> None:
    """Run a test with a daemon's inside in a loop of its own."""

    async def inside() -> None:
        async with api(folder, identities=identities) as it:
            await test(it)

    asyncio.run(inside())
