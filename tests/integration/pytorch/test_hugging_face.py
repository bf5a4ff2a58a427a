"""An unmodified script with ``transformers.Trainer`` is reshaped in the middle of an epoch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from reshape_profiles.hook_reports import listening
from reshape_sidecar.contract import ENV_REPORT_LEVEL, ENV_SOCKET
from reshape_sidecar.wire import WIRE_LEVEL
from tests.support.daemon_bed import Bed, eventually
from tests.support.pytorch_bed import PYTHON
from tests.support.rank_stops import Moment
from tests.support.ranks_bed import SCRIPTS, START_S, Forks, ScriptBed
from tests.support.script_stops import FORMS, ScriptStops, saved

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

LOSS = re.compile(r"^step (\d+) loss (\S+) rate (\S+) log (\d+)$", re.M)
EVALUATION = re.compile(r"^evaluation at (\d+) loss (\S+)$", re.M)
STEPS = 300
ROUNDING = 2e-6
"""Twice what straight runs on 2 x 8 and on 1 x 16 samples differ by, relative to a loss."""
COMMON = (
    *("--output_dir", "out", "--use_cpu", "--report_to", "none", "--disable_tqdm", "true"),
    *("--logging_steps", "1", "--save_strategy", "no", "--learning_rate", "0.01"),
    *("--lr_scheduler_type", "cosine"),
)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("transformers.trainer", "transformers.models.bert.modeling_bert")
    yield made
    made.end()


def script(forks: Forks, folder: Path, *arguments: str) -> ScriptBed:
    return ScriptBed(forks, folder, "hf_train.py", *COMMON, *arguments)


def losses(bed: ScriptBed) -> list[tuple[int, float, float, int]]:
    """Step, loss, learning rate and number of the log of each step, in the order of training."""
    found = LOSS.findall(bed.printed)
    return [(int(step), float(loss), float(rate), int(log)) for step, loss, rate, log in found]


def evaluations(bed: ScriptBed) -> list[tuple[int, float]]:
    return [(int(step), float(loss)) for step, loss in EVALUATION.findall(bed.printed)]


def near(wanted: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same steps, and losses up to rounding."""
    return [(one[0], pytest.approx(one[1], rel=ROUNDING), *one[2:]) for one in wanted]


@pytest.mark.gate
def test_a_reshape_2_1_2_in_mid_epoch_has_the_losses_of_a_straight_run(
    forks: Forks, tmp_path: Path
) -> None:
    """Shuffled, augmented in two loader workers, two micro-batches a step, cosine schedule."""
    arguments = (
        *("--num_train_epochs", "3", "--per_device_train_batch_size", "4"),
        *("--gradient_accumulation_steps", "2", "--dataloader_num_workers", "2"),
        *("--eval_strategy", "epoch"),
    )
    straight = script(forks, tmp_path / "straight", *arguments)
    straight.runs(2)
    reshaped = script(forks, tmp_path / "reshaped", *arguments)
    for gpus, step in ((2, 2), (1, 9), (2, 12)):
        reshaped.runs(gpus, stop_after=step)
        assert reshaped.position("trainer.json")["step"] == step % 6
    reshaped.runs(2)
    assert len(losses(straight)) == 18
    assert losses(reshaped) == near(losses(straight))
    assert evaluations(reshaped) == near(evaluations(straight))
    assert reshaped.position("trainer.json")["verdict"][0] == "exact"
    assert not list((reshaped.folder / "out").iterdir()), "nothing of Reshape is in output_dir"


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ((), "steps-only", "a GPU divides the loss of a micro-batch by its own tokens"),
        (("--gradient_accumulation_steps", "2"), "exact", None),
        (("--pads", "false"), "exact", None),
        (("--task", "classes", "--bf16"), "exact", "to the rounding of bfloat16, 0.8% of a number"),
    ],
)
def test_the_verdict_names_losses_that_parts_of_a_micro_batch_change(
    forks: Forks, tmp_path: Path, arguments: tuple[str, ...], kind: str, said: str | None
) -> None:
    """Of a job that begins on one GPU and may be on two; the model takes the mean over tokens."""
    common = ("--max_steps", "3", "--per_device_train_batch_size", "8", "--pads", "true")
    bed = script(forks, tmp_path / "job", *common, *arguments)
    bed.variables["RESHAPE_SIZES"] = "1,2"
    bed.runs(1)
    assert bed.position("trainer.json")["verdict"][0] == kind
    reason = bed.position("trainer.json")["verdict"][1]
    assert reason is None if said is None else said in reason


def test_under_batch_micro_a_job_that_begins_on_one_gpu_makes_the_steps_of_two(
    forks: Forks, tmp_path: Path
) -> None:
    arguments = ("--max_steps", "3", "--per_device_train_batch_size", "8", "--pads", "true")
    one, two = (script(forks, tmp_path / name, *arguments) for name in ("one", "two"))
    for gpus, bed in ((1, one), (2, two)):
        bed.variables |= {"RESHAPE_SIZES": "1,2", "RESHAPE_MICRO_BATCHES": "2"}
        bed.runs(gpus)
    assert losses(one) == near(losses(two))
    assert len(losses(one)) == 3
    assert one.position("trainer.json")["verdict"][0] == "exact"


def test_a_restart_at_the_same_size_repeats_dropout_and_a_second_call(
    forks: Forks, tmp_path: Path
) -> None:
    """To the last bit, with the weights at the end."""
    arguments = (
        *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--calls", "2"),
        *("--dropout", "0.1", "--logging_steps", "2", "--samples", "98"),
    )
    straight = script(forks, tmp_path / "straight", *arguments)
    straight.runs(2)
    restarted = script(forks, tmp_path / "restarted", *arguments)
    restarted.runs(2, stop_after=5)
    assert restarted.position("trainer.json")["call"] == 0
    restarted.runs(2, stop_after=23)
    assert restarted.position("trainer.json")["call"] == 1
    restarted.runs(2)
    assert len(losses(straight)) == 2 * 7
    assert losses(restarted) == losses(straight)
    for line in ("trained", "weights"):
        wanted = re.findall(rf"^{line} .*$", straight.printed, re.M)
        assert [*dict.fromkeys(re.findall(rf"^{line} .*$", restarted.printed, re.M))] == wanted


def test_twelve_stops_at_random_times_lose_no_step_and_none_hangs(
    forks: Forks, tmp_path: Path
) -> None:
    """During the start, the first step, an evaluation, a save, or anywhere."""
    found = list(ScriptStops(forks, tmp_path / "stops", FORMS["hf"]).stops(39, range(1, 13)))
    assert [stop for stop in found if not stop.is_good] == []
    assert {stop.moment for stop in found} == {moment.name.lower() for moment in Moment}
    assert {stop.gpus for stop in found} == {1, 2}
    early = [stop for stop in found if stop.moment == Moment.START.name.lower()]
    assert len(saved(found)) >= 12 - len(early), "only a start is too early to save"


def test_a_run_folder_that_is_named_by_the_clock_is_noted(forks: Forks, tmp_path: Path) -> None:
    common = ("--max_steps", "4", "--per_device_train_batch_size", "8", "--by_clock")
    for clock in ("true", "false"):
        bed = script(forks, tmp_path / clock, *common, clock)
        bed.runs(1, stop_after=2)
        bed.runs(1)
        kind, note = bed.position("trainer.json")["verdict"]
        assert kind == "exact"
        assert ("each start has another output_dir" in (note or "")) is (clock == "true")
        assert bed.printed.count("before the restart: name it without the clock") == (
            note is not None
        )


def test_what_does_not_fit_is_refused_with_the_difference(forks: Forks, tmp_path: Path) -> None:
    arguments = ("--max_steps", "4", "--per_device_train_batch_size", "8")
    folder = tmp_path / "refused"
    script(forks, folder, *arguments).runs(1, stop_after=2)
    for change, said in (
        (("--hidden", "32"), "does not fit the model: "),
        (("--task", "classes"), "of a model BertForMaskedLM, and the script has BertForSequenceC"),
        (("--samples", "90"), "of a train_dataset of length 96, and the script has 90"),
    ):
        other = script(forks, folder, *arguments, *change)
        other.runs(1, code=1)
        assert said in other.printed
    three = script(forks, folder, *arguments)
    three.runs(3, code=1)
    assert "a step has 8 samples" in three.printed
    assert "which 3 GPUs cannot share equally: choose a batch" in three.printed


def test_corners(forks: Forks, tmp_path: Path) -> None:
    """A script has a tail after its last call, in which a stop is answered at once."""
    bed = ScriptBed(forks, tmp_path / "corners", "hf_corners.py")
    for number in (1, 2):
        bed.stops(bed.begins(1), f"tail of start {number}")
    said = dict(line.split(": ", 1) for line in bed.printed.splitlines() if ": " in line)
    assert "was written with transformers 4.0.0, and this is transformers 5" in said["version"]
    assert "was not written under a transformers.Trainer" in said["other checkpoint"]
    assert said["batch of 8 x 2 x 1"] == "1: 8 x 1 x 2; 2: 8 x 2 x 1; 4: 4 x 4 x 1"
    assert said["batch of 5 x 2 x 3"] == "1: 5 x 1 x 6; 2: 5 x 2 x 3; 4: refused"
    assert said["divided by the count"] == "used"
    assert said["not divided by the count"] == "not used"
    assert said["sample"] == "the same in another order"
    assert "SyncBatchNorm sees that of all" in said["layers"]
    assert (said["frozen layers"], said["frozen layers without averages"]) == ("[]", "1")
    assert (said["named"], said["own"]) == ("2", "2")
    wanted = ["unknown", "Own.training_step is not that of Trainer"]
    assert bed.position("trainer.json")["verdict"] == wanted


def test_a_call_after_the_jobs_length_makes_no_step(forks: Forks, tmp_path: Path) -> None:
    arguments = ("--max_steps", "4", "--calls", "2", "--per_device_train_batch_size", "8")
    bed = script(forks, tmp_path / "length", *arguments)
    bed.variables["RESHAPE_STEPS"] = "3"
    bed.runs(1)
    assert [step for step, *_ in losses(bed)] == [1, 2, 3]
    assert re.findall(r"^trained (\d+)", bed.printed, re.M) == ["3", "0"]


def test_without_a_reshape_it_prints_what_it_prints_without_the_hook(
    forks: Forks, tmp_path: Path
) -> None:
    arguments = (
        *("--max_steps", "6", "--per_device_train_batch_size", "8", "--dropout", "0.1"),
        *("--augment", "False", "--eval_strategy", "steps", "--eval_steps", "4"),
    )
    plain = script(forks, tmp_path / "plain", *arguments)
    plain.runs_without_reshape()
    hooked = script(forks, tmp_path / "hooked", *arguments)
    hooked.runs(1)
    assert len(losses(plain)) == 6
    assert untimed(hooked) == untimed(plain)


def untimed(bed: ScriptBed) -> list[str]:
    """The lines without what depends on the clock."""
    printed = re.sub(r"'(\w+)_(runtime|per_second)': '[^']*'", r"\1", bed.printed)
    return sorted(re.sub(r"\[W\d+ [\d:.]+", "", printed).splitlines())


def test_a_daemon_reshapes_it_4_2_4_with_nothing_but_a_record(bed: Bed) -> None:
    truth = bed.folder / "truth.json"
    truth.write_text(json.dumps({"seconds_per_step": {"paced": {"2": 0.1, "4": 0.1}}}))
    bed.up("--device-truth", str(truth), "--preset", "paper")
    arguments = (
        *("--max_steps", str(STEPS), "--per_device_train_batch_size", "4"),
        *("--dataloader_num_workers", "1"),
    )
    job = bed.submit(
        "bert",
        steps=STEPS,
        command=[str(PYTHON), "hf_train.py", *COMMON, *arguments],
        code=str(SCRIPTS),
        framework="pytorch",
        job_type="paced",
    )
    log = bed.home / "jobs" / job / "attempt-1" / "logs" / "training.log"
    eventually(
        lambda: log.exists() and "step 20 loss" in log.read_text(), least_s=START_S, text="step 20"
    )
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    eventually(lambda: bed.job(job)["size"] == 2, least_s=START_S, text="2 GPUs")
    bed.reaches(job, "running", size=2)
    bed.reshape("cancel", "newcomer")
    bed.reaches(newcomer, "cancelled")
    ended = ("completed", "failed")
    eventually(lambda: bed.job(job)["state"] in ended, least_s=START_S, text="the end")
    done, printed = bed.job(job), log.read_text()
    assert done["state"] == "completed", printed
    assert (done["reshape_downs"], done["reshape_ups"]) == (1, 1)
    assert (done["steps_lost"], done["failures"], done["container_restarts"]) == (0, 0, 0)
    assert done["trajectory"] == "exact", done
    assert [int(step) for step, *_ in LOSS.findall(printed)] == [*range(1, STEPS + 1)]


def test_a_step_takes_as_long_as_trainer_prints_and_evaluations_are_apart(
    forks: Forks, tmp_path: Path
) -> None:
    words = [*COMMON, "--num_train_epochs", "4", "--per_device_train_batch_size", "2"]
    words += ["--eval_strategy", "epoch", "--samples", "96"]
    bed = ScriptBed(forks, tmp_path / "bed", "hf_train.py", *words, step_s=0.03)
    socket = tmp_path / "agent.sock"
    bed.variables = {ENV_SOCKET: str(socket), ENV_REPORT_LEVEL: str(WIRE_LEVEL)}
    with listening(socket) as reports:
        bed.runs(1)
    (per_s,) = re.findall(r"'train_steps_per_second': '?([\d.]+)", bed.printed)
    evaluation_s = [float(s) for s in re.findall(r"'eval_runtime': '?([\d.]+)", bed.printed)]
    progress = reports[-1].progress
    assert (progress.step, progress.total_steps) == (192, 192)
    assert progress.seconds_per_step is not None
    assert progress.apart_s_per_step is not None
    whole_s = 1.0 / float(per_s)
    assert progress.seconds_per_step + progress.apart_s_per_step == pytest.approx(whole_s, rel=0.2)
    apart_s = sum(evaluation_s) / 192
    assert progress.seconds_per_step == pytest.approx(whole_s - apart_s, rel=0.2)
    assert progress.evaluation_s == pytest.approx(fmean(evaluation_s), rel=0.5, abs=0.1)
