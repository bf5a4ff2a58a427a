"""Verification of small real programs with a loop of their own, some with a planted fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reshape_profiles import loader, verification
from reshape_profiles.comparison import Kind, differences
from reshape_profiles.recorded_run import Recorded
from reshape_profiles.schema import Profile, Verification
from reshape_profiles.training_run import RunFailed, Script
from reshape_profiles.verification import Verified
from reshape_sidecar.wire import Trajectory

LOOP = """
import json, random, sys
from reshape_sidecar import session

job = session.start()
state = {"w": 1.0, "average": 0.0}
random.seed(1)
if job.checkpoint is not None:
    saved = json.loads((job.checkpoint / "state.json").read_text())
    state = saved["state"]
    draws = saved["draws"]
    random.setstate((draws[0], tuple(draws[1]), draws[2]))
log = open("losses.txt", "a")

def save(folder):
    draws = random.getstate()
    (folder / "state.json").write_text(json.dumps({"state": state, "draws": draws}))

while job.step < job.total_steps:
    state["w"] -= 0.1 * (state["w"] - random.random())
    state["average"] = 0.9 * state["average"] + 0.1 * state["w"]
    log.write(f"{job.step} {state['w']}\\n")
    log.flush()
    job.step_done(save, loss=state["w"], accuracy=min(1.0, state["average"]))
job.finished(save)
"""
FAULTS = {
    "random numbers are not restored": (
        "    random.setstate((draws[0], tuple(draws[1]), draws[2]))\n",
        "",
        Kind.VALUE,
        "step 11: loss",
    ),
    "a moving average is not restored": (
        'state = saved["state"]',
        'state["w"] = saved["state"]["w"]',
        Kind.VALUE,
        "step 11: accuracy",
    ),
    "a file is written anew": ('"losses.txt", "a"', '"losses.txt", "w"', Kind.FILE, "file losses"),
    "the resumed process fails": (
        "while job.step < job.total_steps:",
        "if job.step == 20: sys.exit(4)\nwhile job.step < job.total_steps:",
        Kind.STEPS,
        "step 21",
    ),
}


def script(folder: Path, text: str) -> Script:
    (folder / "train.py").write_text(text)
    return Script(
        ("python", "train.py"), folder, "loop", simulated=True, framework="other", timeout_s=120.0
    )


def verified(folder: Path, text: str, sizes: tuple[int, ...] = (1, 1, 1)) -> Verified:
    devices = ("sim-0", "sim-1")
    return verification.verify(script(folder, text), devices, sizes, 30, "2026-11-25")


def test_a_loop_that_saves_everything_is_exact(tmp_path: Path) -> None:
    found = verified(tmp_path, LOOP)
    assert found.verification.verdict == Trajectory.EXACT
    assert found.stops == (10, 20)
    assert found.differences == ()
    assert found.verification.reason == "equal to the last bit"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(tmp_path: Path, fault: str) -> None:
    right, wrong, kind, subject = FAULTS[fault]
    assert LOOP.count(right) == 1
    found = verified(tmp_path, LOOP.replace(right, wrong))
    assert found.verification.verdict != Trajectory.EXACT
    assert found.differences[0].kind is kind
    assert found.differences[0].subject.startswith(subject)
    assert found.verification.reason == found.differences[0].text


def test_a_script_that_does_not_repeat_itself_is_no_fault_of_a_stop(tmp_path: Path) -> None:
    found = verified(tmp_path, LOOP.replace("random.seed(1)", "random.seed()"))
    assert found.verification.verdict == Trajectory.UNKNOWN
    assert "two runs without a stop differ (step 1: loss)" in found.verification.reason
    assert found.differences == ()


def test_other_numbers_of_devices_are_compared_with_a_tolerance(tmp_path: Path) -> None:
    rounding = "(state['w'] - random.random()) * (1 + 1e-9 * job.devices)"
    text = LOOP.replace('(state["w"] - random.random())', rounding)
    found = verified(tmp_path, text, (1, 2, 1))
    assert found.verification.verdict == Trajectory.EXACT
    assert "equal within" in found.verification.reason
    assert found.verification.sizes == (1, 2, 1)


def test_the_code_folder_is_left_as_it_was(tmp_path: Path) -> None:
    verified(tmp_path, LOOP)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_script_without_steps_is_refused_with_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"recorded no step.*\n.*no steps here"):
        verified(tmp_path, "print('no steps here')")


def test_too_few_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="5 steps are too few"):
        verification.verify(script(tmp_path, LOOP), ("sim-0",), (1, 1, 1), 5, "2026-11-25")


def test_a_script_that_stops_only_at_its_end_is_not_called_exact(tmp_path: Path) -> None:
    text = LOOP.replace("job.step_done(save, ", "job.step_done(save, steps=15, ")
    with pytest.raises(RunFailed, match=r"only 1 of 2 stops came before the last step 30"):
        verified(tmp_path, text)


def test_a_step_that_is_trained_twice_is_named() -> None:
    straight = Recorded(
        steps=((1, {}), (2, {}), (3, {})),
        ends=(),
        files={},
        exit_code=0,
        stops=(),
        verdict=None,
        reason=None,
        output="",
    )
    stopped = replace(straight, steps=((1, {}), (2, {}), (2, {}), (3, {})), stops=(2,))
    assert [d.text for d in differences(straight, stopped)] == [
        "step 2 is trained twice, and trained once without a stop; "
        "the checkpoint at the stop did not hold the newest step"
    ]


def test_a_verification_is_part_of_a_profile_as_a_document() -> None:
    measured = Verification("steps-only", "step 3: loss", 60, (4, 2, 4), "2026-11-25", "Python 3")
    profile = Profile("mlp", verification=measured)
    assert loader.parse(loader.document([profile]), "x").profiles == (profile,)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("verdict", "perfect", "verdict is 'perfect'; use one of: exact, steps-only, unknown"),
        ("sizes", [], "is not a list of GPU counts"),
        ("steps", "60", "is not of type int"),
        ("date", None, "'None' is not of type str|None is not of type str"),
    ],
)
def test_a_wrong_verification_is_refused_by_field(field: str, value: object, message: str) -> None:
    measured = Verification("exact", "", 60, (1, 1, 1), "2026-11-25", "Python 3")
    document = loader.document([Profile("mlp", verification=measured)])
    document["profile"][0]["verification"][field] = value
    with pytest.raises(loader.ProfileError, match=message):
        loader.parse(document, "x")
