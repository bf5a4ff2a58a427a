"""The API's description, its metrics and its readiness."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from reshape_controller.http.app import ROUTES
from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import document
from reshape_controller.http.routes import OPERATIONS
from tests.support.http_bed import DEADLINE_S, RECORD, Api, run

DOCS = Path(__file__).resolve().parents[3] / "docs"


def _example(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: "1" if m[1] == "attempt" else "x", path)


def test_what_is_described_is_served_and_what_is_served_is_described() -> None:
    described = {_example(operation.path) for operation in OPERATIONS}
    for pattern, handler in ROUTES:
        mine = [path for path in described if re.fullmatch(pattern, path)]
        assert mine, f"{pattern} is not described"
        methods = {
            operation.method
            for operation in OPERATIONS
            if re.fullmatch(pattern, _example(operation.path))
        }
        assert methods == {
            name for name in ("get", "post", "delete") if name in handler.__dict__
        }, pattern
        described -= set(mine)
    assert described == set(), "these are described and not served"


def test_every_operation_is_in_the_document_with_existing_schemas() -> None:
    found: dict[str, Any] = document(OPERATIONS, ErrorBody)
    schemas = found["components"]["schemas"]
    references = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert references == set(schemas)
    assert {"JobView", "GpuView", "Timeline", "ErrorBody"} <= references
    assert found["paths"]["/healthz"]["get"]["security"] == []


def test_every_operation_and_every_field_of_a_job_is_in_the_documentation() -> None:
    text = (DOCS / "api.md").read_text()
    missing = [op.path for op in OPERATIONS if f"`{op.method.upper()} {op.path}`" not in text]
    assert missing == []
    schemas = document(OPERATIONS, ErrorBody)["components"]["schemas"]
    for name in ("JobView", "GpuView", "HostView", "EventView", "Span", "ErrorBody"):
        absent = [field for field in schemas[name]["properties"] if f"`{field}`" not in text]
        assert absent == [], f"fields of {name} that docs/api.md does not name"


def test_the_document_is_served(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        assert (await it.get("/v1/openapi.json")).json["openapi"] == "3.1.0"

    run(tmp_path, test)


def test_metrics_show_jobs_gpus_and_requests(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        answer = await it.get("/metrics")
        lines = answer.body.decode().splitlines()
        assert answer.headers["content-type"].startswith("text/plain")
        assert 'reshape_jobs{state="running"} 1.0' in lines
        assert 'reshape_gpus{host="local",state="in use"} 4.0' in lines
        assert 'reshape_gpus{host="local",state="idle"} 0.0' in lines
        assert any(line.startswith('reshape_http_requests_total{handler="Jobs"') for line in lines)
        assert "reshape_ready 1.0" in lines

    run(tmp_path, test)


def test_metrics_count_each_start_once_by_its_kind(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        async with asyncio.timeout(DEADLINE_S):
            while (await it.get("/v1/jobs/job")).json["stage"] != "training":
                await asyncio.sleep(0.02)
        for _ in range(2):
            lines = (await it.get("/metrics")).body.decode().splitlines()
            assert 'reshape_starts_total{fallback="false",how="cold"} 1.0' in lines

    run(tmp_path, test)


def test_ready_once_the_log_was_recovered(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        assert (await it.get("/readyz")).json["status"] == "ready"

    run(tmp_path, test)
