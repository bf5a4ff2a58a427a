"""A policy that fails is told to everyone who waits for it, and starts jobs once it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.live.loop import Loop
from reshape_controller.policies import make_policy
from tests.support.http_bed import RECORD, Api, run

TOLD_S = 5.0


class Breaks:
    """Fails while it is broken."""

    name = "breaks"
    broken = True

    def decide(self, snapshot: Snapshot) -> Plan:
        if self.broken:
            raise ValueError("no such column")
        return make_policy("adaptive").decide(snapshot)


def test_status_metrics_and_the_waiting_job_say_which_policy_fails_since_when_and_how(
    tmp_path: Path,
) -> None:
    policy = Breaks()

    async def test(it: Api) -> None:
        loop: Loop = it.context.control._loop
        loop.planner.policy = policy
        job = (await it.post("/v1/jobs", RECORD)).json["id"]
        async with asyncio.timeout(TOLD_S):
            while not (await it.get("/v1/status")).json["waits_for"]:
                await asyncio.sleep(0.05)
        shown = (await it.get(f"/v1/jobs/{job}")).json
        overview = (await it.get("/v1/overview")).json
        listed = (await it.get("/v1/jobs")).json["jobs"][0]
        texts = {
            "status": (await it.get("/v1/status")).json["waits_for"],
            "get": shown["reason"],
            "list": listed["reason"],
            "page": overview["reason"],
            "page's queue": overview["queue"][0]["reason"],
        }
        for where, text in texts.items():
            assert "the policy breaks fails since 20" in text, where
            assert "no such column" in text, where
        assert "reshape_policy_fails 1.0" in (await it.get("/metrics")).body.decode()
        policy.broken = False
        await it.reaches(job, "running")  # by itself, for nothing else happens
        status = (await it.get("/v1/status")).json
        assert status["waits_for"] == ""
        assert (await it.get(f"/v1/jobs/{job}")).json["reason"] == ""
        assert "reshape_policy_fails 0.0" in (await it.get("/metrics")).body.decode()

    run(tmp_path, test)
