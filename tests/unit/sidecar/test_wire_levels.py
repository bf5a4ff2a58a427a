"""A SideCar and a controller of different releases understand each other: fields by their level."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_sidecar import codec
from reshape_sidecar.agent import reporting
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.init.values import InitStatus
from reshape_sidecar.wire import (
    WIRE_LEVEL,
    Desired,
    Evaluation,
    Mode,
    Observed,
    Phase,
    PhaseTimes,
    Prepared,
    PrepareStage,
    Progress,
    Proof,
    Reached,
    Saves,
    Standby,
    StandbyState,
    StartKind,
    TargetProgress,
)
from reshape_sidecar.wire_levels import at_level, desired_at_level, level_in

HEAD = {"type": "Observed", "job": "j", "attempt": 1, "generation": 2, "sequence": 3}
LEVEL_1: dict[str, Any] = HEAD | {
    "phase": "crashed",
    "exit_code": 1,
    "progress": {"type": "Progress", "step": 7},
    "times": {"type": "PhaseTimes", "save_s": 0.5, "import_s": 2.0},
}
LEVEL_2: dict[str, Any] = LEVEL_1 | {
    "progress": {
        "type": "Progress",
        "step": 7,
        "target": {"type": "TargetProgress", "metric": "val_accuracy"},
    },
    "saves": "never",
    "exception": "KeyError",
    "exception_message": "1",
}
"""The report as a SideCar of the release before writes it, and its controller reads it."""
LEVEL_3: dict[str, Any] = LEVEL_2 | {
    "times": {
        "type": "PhaseTimes",
        "save_s": 0.5,
        "import_s": 2.0,
        "how": "zygote",
        "fallback": "its successor ended",
        "position_s": 0.25,
        "prepare_s": 4.0,
    },
    "standby": {"type": "Standby", "state": "off", "reason": "a thread"},
    "can_prepare": True,
    "prepare": ["g"],
    "prepared": {"type": "Prepared", "devices": ["g"], "stage": "device-barrier"},
}
LEVEL_4: dict[str, Any] = LEVEL_3 | {
    "progress": LEVEL_2["progress"]
    | {"evaluations": [{"type": "Evaluation", "metric": "val_loss", "step": 7, "value": 0.5}]},
}
LEVEL_5: dict[str, Any] = LEVEL_4 | {
    "reached": {"type": "Reached", "attempt": 1, "step": 6},
    "refused": True,
}
LEVEL_6: dict[str, Any] = LEVEL_5 | {
    "progress": LEVEL_4["progress"]
    | {"evaluation_s": 1.5, "epoch_end_s": 2.0, "apart_s_per_step": 0.02},
    "ending": True,
    "silent_s": 20.0,
    "devices_used": 1,
}
PROOF = Proof("differs", 7, 4, 2, "loss 0.8 instead of 0.7", "the data")
LEVEL_7: dict[str, Any] = LEVEL_6 | {
    "progress": LEVEL_6["progress"]
    | {
        "proof": {
            "type": "Proof",
            "result": "differs",
            "step": 7,
            "before": 4,
            "now": 2,
            "figures": "loss 0.8 instead of 0.7",
            "hint": "the data",
        }
    },
}
BY_LEVEL = dict(enumerate((LEVEL_1, LEVEL_2, LEVEL_3, LEVEL_4, LEVEL_5, LEVEL_6, LEVEL_7), 1))
FULL = Observed(
    "j",
    1,
    2,
    3,
    Phase.CRASHED,
    exit_code=1,
    progress=Progress(
        7,
        target=TargetProgress("val_accuracy"),
        evaluations=(Evaluation("val_loss", 7, 0.5),),
        evaluation_s=1.5,
        epoch_end_s=2.0,
        apart_s_per_step=0.02,
        proof=PROOF,
    ),
    times=PhaseTimes(
        0.5,
        import_s=2.0,
        how=StartKind.ZYGOTE,
        fallback="its successor ended",
        position_s=0.25,
        prepare_s=4.0,
    ),
    saves=Saves.NEVER,
    exception="KeyError",
    exception_message="1",
    standby=Standby(StandbyState.OFF, "a thread"),
    can_prepare=True,
    prepare=("g",),
    prepared=Prepared(("g",), PrepareStage.DEVICE_BARRIER),
    silent_s=20.0,
    reached=Reached(1, 6),
    refused=True,
    ending=True,
    devices_used=1,
)
DESIRED = Desired(1, "j", 1, 2, Mode.RUN, ("g", "h"), prepare=("g",))
PLAIN = {
    "type": "Desired", "epoch": 1, "job": "j", "attempt": 1, "generation": 2, "mode": "run",
    "devices": ["g", "h"],
}  # fmt: skip


@pytest.mark.parametrize("level", BY_LEVEL)
def test_a_controller_gets_the_fields_of_its_level_and_no_others(level: int) -> None:
    assert codec.to_value(at_level(FULL, level)) == BY_LEVEL[level]


def test_every_level_is_in_this_table() -> None:
    assert list(BY_LEVEL) == list(range(1, WIRE_LEVEL + 1))


@pytest.mark.parametrize("level", BY_LEVEL)
def test_a_report_of_an_earlier_sidecar_is_read(level: int) -> None:
    assert codec.from_value(Observed, BY_LEVEL[level]) == at_level(FULL, level)


def test_a_sidecar_gets_what_to_prepare_only_if_it_knows_that_field() -> None:
    assert codec.to_value(desired_at_level(DESIRED, 2)) == PLAIN
    assert codec.to_value(desired_at_level(DESIRED, 3)) == PLAIN | {"prepare": ["g"]}
    assert codec.from_value(Desired, PLAIN).prepare is None


def test_a_sidecar_is_told_that_its_job_has_failed_only_if_it_knows_that_field() -> None:
    failed = Desired(1, "j", 1, 2, Mode.EXIT, failed=True)
    assert desired_at_level(failed, 6) == failed
    assert desired_at_level(failed, 5) == replace(failed, failed=False)
    assert "failed" not in codec.to_value(desired_at_level(failed, 2))


def test_a_controller_is_told_of_an_end_from_outside_only_if_it_knows_that_field() -> None:
    ends = replace(FULL, ending=True)
    assert at_level(ends, 6).ending
    assert codec.to_value(at_level(ends, 4)) == LEVEL_4


def test_a_peer_without_a_header_is_of_the_first_level() -> None:
    assert [level_in(text) for text in (None, "", "1", "2", "7")] == [1, 1, 1, 2, 7]
    with pytest.raises(ValueError, match="two"):
        level_in("two")


def hub_with(desired: Desired) -> SidecarHub:
    hub = SidecarHub(lambda event: None, lambda: 0.0, lambda: 0.0)
    hub.set_desired(desired)
    return hub


def report(sequence: int, prepare: tuple[str, ...] | None = None) -> Observed:
    return Observed("j", 1, 2, sequence, Phase.RUNNING, epoch=1, prepare=prepare)


async def answer(hub: SidecarHub, observed: Observed, level: int) -> Desired | None:
    """The answer that is ready at once; None if it is held back."""
    exchange = asyncio.ensure_future(hub.exchange("j", 1, observed, 60.0, level))
    done, _ = await asyncio.wait([exchange], timeout=0.05)
    exchange.cancel()
    return exchange.result() if done else None


def test_the_hub_tells_an_earlier_sidecar_nothing_of_it_and_holds_its_answer() -> None:
    async def check() -> None:
        hub = hub_with(DESIRED)
        for level in (1, 2):
            assert await answer(hub, report(level), level) is None
        exchange = asyncio.ensure_future(hub.exchange("j", 1, report(3), 0.0, 2))
        assert await exchange == replace(DESIRED, prepare=None)

    asyncio.run(check())


def test_the_hub_repeats_what_to_prepare_until_the_sidecar_reports_it() -> None:
    async def check() -> None:
        hub = hub_with(DESIRED)
        assert await answer(hub, report(1), WIRE_LEVEL) == DESIRED
        assert await answer(hub, report(2), WIRE_LEVEL) == DESIRED
        assert await answer(hub, report(3, ("g",)), WIRE_LEVEL) is None
        held = asyncio.ensure_future(hub.exchange("j", 1, report(4, ("g",)), 60.0, WIRE_LEVEL))
        await asyncio.sleep(0)
        hub.set_desired(replace(DESIRED, prepare=None))  # the plan is given up
        assert await held == replace(DESIRED, prepare=None)

    asyncio.run(check())


def test_the_agent_takes_another_device_set_to_prepare_in_the_same_generation() -> None:
    spec = AttemptSpec("j", 1, "j", ("t",), "/c", "/p", "http://x", 1, DeviceMode.SIMULATED)
    assert reporting.refusal_of(spec, replace(DESIRED, prepare=None), DESIRED) is None
    assert reporting.refusal_of(spec, DESIRED, replace(DESIRED, prepare=None)) is None
    status = InitStatus(1, 1)
    for desired in (DESIRED, replace(DESIRED, prepare=None)):
        memory = Memory(desired=desired)
        found = reporting.observed_state(spec, memory, status, True, 1, ())
        assert found.prepare == desired.prepare
