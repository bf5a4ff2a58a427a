"""Quarantined GPUs over HTTP: who sees them, and how they come back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from reshape_controller.core.limits import Limits
from tests.support.http_bed import RECORD, Api, api


async def states(it: Api, wanted: set[str]) -> Any:
    """Wait until all GPUs are in these states; the list."""
    async with asyncio.timeout(30.0):
        while True:
            gpus = (await it.get("/v1/gpus")).json["gpus"]
            if {gpu["state"] for gpu in gpus} == wanted:
                return gpus
            await asyncio.sleep(0.02)


def test_a_quarantined_gpu_comes_back_only_on_an_operators_word(tmp_path: Path) -> None:
    async def test() -> None:
        async with api(tmp_path, Limits(verify_s=0.3)) as it:
            await it.post("/v1/jobs", {**RECORD, "name": "first", "optional_gpus": [4]})
            await it.reaches("first", "running")
            it.launcher.occupied = True
            await it.post("/v1/jobs/first/cancel")
            found = await states(it, {"quarantined"})
            assert {gpu["reason"] for gpu in found} == {
                "could not verify in time that no process uses it"
            }
            await it.post("/v1/jobs", {**RECORD, "name": "second", "optional_gpus": [2]})
            for gpu in ("gpu-0", "gpu-1"):
                assert (await it.get("/v1/jobs/second")).json["state"] != "running"
                cleared = await it.post(f"/v1/gpus/{gpu}/clear", Reshape_User="ada")
                assert (cleared.code, cleared.json["id"]) == (200, gpu)
            running = await it.reaches("second", "running")
            assert set(running["gpus"]) == {"gpu-0", "gpu-1"}

    asyncio.run(test())


def test_a_gpu_that_is_not_quarantined_is_not_cleared(tmp_path: Path) -> None:
    async def test() -> None:
        async with api(tmp_path) as it:
            idle = await it.post("/v1/gpus/gpu-0/clear")
            assert (idle.code, idle.json["code"]) == (409, "conflict")
            assert "gpu-0 is idle, not quarantined" in idle.json["message"]
            assert "reshape gpus" in idle.json["hint"]
            unknown = await it.post("/v1/gpus/gpu-9/clear")
            assert (unknown.code, unknown.json["code"]) == (404, "not-found")
            assert "unknown GPU 'gpu-9'" in unknown.json["message"]

    asyncio.run(test())
