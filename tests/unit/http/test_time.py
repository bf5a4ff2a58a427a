"""Times are those of the daemon's clock, also where the machine's was set."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from reshape_controller.cli.timeline.commands import from_s
from reshape_gpu.client import Client
from reshape_gpu.target import Target
from tests.support.http_bed import RECORD, TOKEN, api

AHEAD_S = 7200.0
"""The log goes on there, and the machine's clock was set back."""
PASSES_S = 0.3


def test_ages_and_the_timeline_go_by_the_daemons_clock(tmp_path: Path) -> None:
    async def inside() -> None:
        async with api(tmp_path) as it:
            it.clock.not_before(time.time() + AHEAD_S)
            job = (await it.ask("POST", "/v1/jobs", RECORD)).json
            await it.reaches(job["id"], "running")
            asked = Client.at(Target(f"http://127.0.0.1:{it.port}", TOKEN, "", ""))
            page = await asyncio.to_thread(asked.page)
            age_s = asked.now_s - page.jobs[0].submitted_at_s
            assert 0 <= age_s < AHEAD_S / 2
            before_s = (await it.get("/v1/timeline")).json["to_s"]
            await asyncio.sleep(PASSES_S)
            after_s = (await it.get("/v1/timeline")).json["to_s"]
            assert after_s - before_s > PASSES_S / 2
            last_s = await asyncio.to_thread(from_s, "10m", asked)
            assert last_s is not None
            assert asked.now_s - last_s == 600
            assert last_s > time.time() + AHEAD_S / 2

    asyncio.run(inside())
