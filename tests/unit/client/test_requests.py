"""The client's requests and values against the OpenAPI document of the daemon."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reshape_gpu import requests
from reshape_gpu.requests import Request, Response
from reshape_sidecar import codec

DOCUMENT = Path(__file__).resolve().parents[2] / "golden" / "openapi.json"
RECORD = {"name": "job"}
REQUESTS: tuple[Request[Any], ...] = (
    requests.job("k"),
    requests.jobs(1, "a", "running", "ada", "lr-*"),
    requests.submit(RECORD, "key"),
    requests.submit_array(RECORD),
    requests.trial(RECORD),
    requests.act("k", "cancel"),
    requests.act("k", "pause"),
    requests.act("k", "resume"),
    requests.pin("k", 2),
    requests.history("k", 1),
    requests.decisions("k", 1),
    requests.logs("k", "training.log", tail=1, offset=1, attempt=1, wait_s=1.0),
    requests.usage(0.0, 1.0, "user", "ada"),
    requests.gpus(),
    requests.hosts(),
    requests.clear("g"),
    requests.drain("h", "drain"),
    requests.drain("h", "undrain"),
    requests.status(),
    requests.whoami(),
    requests.page_link(),
)


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(DOCUMENT.read_text())


def operation(document: Any, request: Request[Any]) -> Any:
    """The operation of the document that a request is for."""
    for path, operations in document["paths"].items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", path)
        if re.fullmatch(pattern, request.path) and request.method.lower() in operations:
            return operations[request.method.lower()]
    raise AssertionError(f"the document has no {request.method} {request.path}")


def test_every_function_of_the_module_is_compared() -> None:
    made = {name for name, each in vars(requests).items() if callable(each) and name[0].islower()}
    own = {name for name in made if vars(requests)[name].__module__ == requests.__name__}
    source = Path(__file__).read_text()
    assert [name for name in sorted(own) if f"requests.{name}(" not in source] == []


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r.method} {r.path}")
def test_the_document_has_each_operation_with_its_parameters_and_answer(
    document: Any, request_: Request[Any]
) -> None:
    found = operation(document, request_)
    named = {each["name"] for each in found["parameters"] if each["in"] == "query"}
    assert set(request_.query) <= named
    assert (request_.body is not None) == ("requestBody" in found)
    success = next(code for code in found["responses"] if code.startswith("2"))
    content = found["responses"][success]["content"]
    if request_.kind is Response:
        assert list(content) == ["text/plain"]
        return
    assert content["application/json"]["schema"]["$ref"].endswith(f"/{codec.tag_of(request_.kind)}")


def test_every_field_that_the_client_reads_is_in_the_document(document: Any) -> None:
    schemas = document["components"]["schemas"]
    kinds = {request.kind for request in REQUESTS if request.kind is not Response}
    for kind in kinds:
        names = {each.name for each in dataclasses.fields(kind)}
        assert names == set(schemas[codec.tag_of(kind)]["properties"]), kind
