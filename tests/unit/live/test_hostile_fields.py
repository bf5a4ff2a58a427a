"""A hostile text in any field of a record arrives at the launch as it is, or is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reshape_controller.core.model import HostId, JobId, JobSpec
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_controller.records import RecordInvalid, from_json
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from tests.support.hostile_texts import HOSTILE, NO_TEXTS
from tests.support.world import World

PAYLOADS = tuple(
    dict.fromkeys(
        (*HOSTILE, *NO_TEXTS, *(f"/{text}" for text in HOSTILE), *(f"a{text}" for text in HOSTILE))
    )
)
RECORD: dict[str, object] = {
    **{"name": "job", "command": ["x"], "optional_gpus": [1], "code": "/srv"},
    "target_accuracy": 0.9,
}


@dataclass(frozen=True)
class Field:
    """A field of a record; ``given`` makes its value, ``found`` reads the text in the launch."""

    given: Callable[[str], object]
    found: Callable[[LaunchSpec], object]
    owner: bool = False
    """Whether the text stays in the controller."""


FIELDS = {
    "name": Field(str, lambda launch: launch.name),
    "command": Field(lambda text: ["x", text], lambda launch: launch.command[1]),
    "env": Field(lambda text: {"V": text}, lambda launch: dict(launch.env)["V"]),
    "image": Field(str, lambda launch: launch.image),
    "code": Field(str, lambda launch: launch.code),
    "dataset": Field(str, lambda launch: launch.dataset),
    "checkpoints": Field(str, lambda launch: launch.checkpoints),
    "job_type": Field(str, lambda launch: launch.job_type),
    "metric": Field(str, lambda launch: launch.metric),
    "user": Field(str, lambda launch: None, owner=True),
}
SETTINGS = LaunchSettings("http://127.0.0.1:1", Path("/work"))


def launched(spec: JobSpec) -> LaunchSpec:
    """The launch of a record, written and read as its container reads it."""
    world = World().boot()
    world.submit("job", 1)
    read_again = codec.loads(JobSpec, codec.dumps(spec))
    job = replace(world.engine.state.jobs[JobId("job")], spec=read_again)
    found = launch_spec(SETTINGS, job, HostId("h"), (), 1, 60.0)
    again: LaunchSpec = codec.loads(LaunchSpec, codec.dumps(found))
    assert again == found
    return again


def record_of(record: dict[str, object]) -> JobSpec | RecordInvalid:
    try:
        return from_json(json.dumps(record))
    except RecordInvalid as error:
        return error


def test_there_are_200_payloads() -> None:
    assert len(PAYLOADS) >= 200


@pytest.mark.parametrize("name", FIELDS)
def test_a_text_arrives_as_it_is_or_is_refused_by_its_field(name: str) -> None:
    field, arrived = FIELDS[name], 0
    for text in PAYLOADS:
        found = record_of({**RECORD, name: field.given(text)})
        if isinstance(found, RecordInvalid):
            assert {each.path.split(".")[0].split("[")[0] for each in found.errors} == {name}, text
            continue
        assert (found.user if field.owner else field.found(launched(found))) == text
        arrived += 1
    assert arrived > 5


@pytest.mark.parametrize("text", NO_TEXTS)
@pytest.mark.parametrize("name", FIELDS)
def test_a_zero_byte_is_refused_in_every_field(name: str, text: str) -> None:
    with pytest.raises(RecordInvalid):
        from_json(json.dumps({**RECORD, name: FIELDS[name].given(text)}))
