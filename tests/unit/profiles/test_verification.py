"""Verification of small real programs with a loop of their own, some with a planted fault."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_profiles import loader, verification
from reshape_profiles.comparison import Kind, Tolerance, differences
from reshape_profiles.recorded_run import Recorded
from reshape_profiles.schema import Profile, Verification
from reshape_profiles.training_run import RunFailed, Script, python_of, remedy
from reshape_profiles.verification import Verified
from reshape_sidecar.contract import HookPhase, HookReport
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


UNLIKE = "(state['w'] - random.random()) * (1 + 0.2 * job.devices)"
"""A step that is another one on two devices than on one."""


def test_a_loss_that_couples_the_samples_of_a_device_is_steps_only(tmp_path: Path) -> None:
    found = verified(tmp_path, LOOP.replace('(state["w"] - random.random())', UNLIKE), (1, 2, 1))
    assert found.verification.verdict == Trajectory.STEPS_ONLY
    assert "another number of GPUs changes the losses by " in found.verification.reason
    assert found.differences == ()


def test_what_a_stop_changes_does_not_hide_behind_another_number_of_devices(
    tmp_path: Path,
) -> None:
    right, wrong, kind, subject = FAULTS["a moving average is not restored"]
    text = LOOP.replace('(state["w"] - random.random())', UNLIKE).replace(right, wrong)
    found = verified(tmp_path, text, (2, 1, 2))
    assert found.verification.verdict == Trajectory.STEPS_ONLY
    assert (found.differences[0].kind, found.stops) == (kind, (10, 20))
    assert found.verification.reason.startswith(f"on 2 of the GPUs alone, {subject} is ")


@pytest.mark.parametrize(
    ("expected", "verdict", "said"),
    [
        (None, Trajectory.STEPS_ONLY, "another number of GPUs changes the weights by 0.004"),
        ("to the rounding of bfloat16, 0.8% of a number", Trajectory.EXACT, "bfloat16 (0.8%)"),
        ("to the rounding of float16, 0.1% of a number", Trajectory.STEPS_ONLY, "by 0.004"),
    ],
)
def test_half_precision_is_equal_to_its_own_rounding(
    expected: str | None, verdict: Trajectory, said: str
) -> None:
    found = verification._equal(Tolerance({"weight w": [(3, 0.004)]}), expected)
    assert found.verdict is verdict
    assert said in found.reason


def test_the_versions_are_those_of_the_scripts_python(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho Python 9.9.9, torch 9.0\n")
    other.chmod(0o755)
    made = replace(script(tmp_path, LOOP), command=(str(other), "train.py"))
    assert verification.versions(python_of(made)) == "Python 9.9.9, torch 9.0"
    own = replace(made, command=(sys.executable, "train.py"))
    assert verification.versions(python_of(own)) == verification.versions()
    venv = tmp_path / "venv" / "python"
    venv.parent.mkdir()
    venv.symlink_to(sys.executable)
    assert f"Python {platform.python_version()}" in verification.versions(str(venv))


def test_a_trainer_that_is_alone_in_its_process_gets_the_remedy_of_the_record(
    tmp_path: Path,
) -> None:
    made = replace(script(tmp_path, "print('trained')"), framework="pytorch")
    noticed = HookReport(1, HookPhase.NOTICED)
    assert remedy(made, [noticed]) == "write `processes: per-gpu` in the record"
    assert remedy(made, []).startswith("write `processes: per-gpu` in the record if a Trainer")
    with pytest.raises(RunFailed, match="recorded no step") as failed:
        verification.verify(made, ("sim-0",), (1, 1, 1), 30, "2026-11-25")
    assert failed.value.remedy == remedy(made, [])


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
