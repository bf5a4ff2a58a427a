"""The hook changes neither output nor end of a script, and names what a reshape would change."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from reshape_sidecar import contract
from tests.support.hook_bed import ROOT, RUN, Ended, Job, plain, running

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
QUICK, VERDICTS = SCRIPTS / "quick.py", SCRIPTS / "verdicts.py"
MNIST = ROOT / "examples" / "mnist_like" / "train.py"


def masked(text: str) -> str:
    """Without times, dates, pids and addresses."""
    text = re.sub(r"^[IWE]\d{4} .*?(?=\w+\.cc)", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d+\.\d{6,}|\b\d+(\.\d+)?m?s(/step)?\b", "T", text)
    return re.sub(r"0x[0-9a-f]+|\b\d{5,}\b", "N", text)


def hooked(script: Path, folder: Path, *arguments: str, **told: str) -> Ended:
    """Under the hook with a checkpoint folder, on the devices that the machine has."""
    environment = {
        contract.ENV_JOB: "job-1",
        contract.ENV_ATTEMPT: "1",
        contract.ENV_GENERATION: "1",
        contract.ENV_CHECKPOINTS: str(folder),
        **told,
    }
    with running(
        [str(p) for p in (sys.executable, RUN, script, *arguments)], environment, []
    ) as process:
        return process.wait()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (QUICK, {"VERBOSE": "2", "EXIT": "3"}),
        (QUICK, {"VERBOSE": "2", "RAISE_AT": "7"}),
        (QUICK, {"INPUT": "pipeline"}),
        (MNIST, {}),
    ],
    ids=["output and exit code", "a callback raises", "pipeline", "example"],
)
def test_without_a_reshape_nothing_that_a_script_shows_changes(
    tmp_path: Path, script: Path, told: dict[str, str]
) -> None:
    arguments = () if script is QUICK else ("--epochs", "1", "--samples", "512")
    wanted = plain(script, *arguments, **told)
    got = hooked(script, tmp_path / "checkpoints", *arguments, **told)
    assert got.code == wanted.code
    assert masked(got.out) == masked(wanted.out)
    if "RAISE_AT" in told:
        # Frames of the hook inside of Keras's own are the one thing that a traceback shows.
        assert masked(got.err).splitlines()[-1] == masked(wanted.err).splitlines()[-1]
    else:
        assert masked(got.err) == masked(wanted.err)


def test_a_script_that_fails_can_go_on_from_its_periodic_checkpoint(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", QUICK)
    failed = job.run(RAISE_AT="13", STEP_S="0.7")
    assert failed.code == 1
    assert "a callback of the script fails" in failed.err
    saved = job.newest().manifest
    assert 5 <= saved.step < 13
    assert not saved.complete
    again = job.run()
    assert (again.code, again.lines("STEP")[0]) == (0, f"STEP {saved.step + 1}")


def test_a_seed_of_the_record_makes_an_unseeded_script_repeatable(tmp_path: Path) -> None:
    told = {"SEEDED": "0", "EPOCHS": "2", "RESHAPE_SEED": "11"}
    runs = [Job(tmp_path / name, QUICK).run(1, **told) for name in ("one", "two")]
    assert runs[0].code == 0, runs[0].err
    assert runs[0].lines("SEEN") == runs[1].lines("SEEN") != []


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The verdict on each fit of one script, all of them in one process."""
    ended = Job(tmp_path_factory.mktemp("verdicts") / "job", VERDICTS).run()
    assert ended.code == 0, ended.err
    lines = (line.split(" ", 1)[1].split("|") for line in ended.lines("VERDICT"))
    return {case: (kind, reason) for case, kind, reason in lines}


@pytest.mark.parametrize(
    ("case", "kind", "reason"),
    [
        ("plain", "exact", None),
        ("pipeline", "exact", None),
        ("half_precision", "exact", "to the rounding of float16, 0.1% of a number"),
        ("no_strategy", "exact", "no distribution strategy: it uses 1 of 2"),
        ("own_devices", "exact", "chooses its devices itself: it uses 1 of 2"),
        ("batch_normalization", "steps-only", "BatchNormalization"),
        ("synchronized", "exact", None),
        ("dropout", "steps-only", "random layers"),
        ("no_dropout", "exact", None),
        ("dropout_without_strategy", "exact", "no distribution strategy"),
        ("normalization_without_strategy", "exact", "no distribution strategy"),
        ("noise", "steps-only", "training step draws stateful random numbers"),
        ("own_variable", "exact", None),
        ("strange_variable", "steps-only", "no attribute of the model or of its layers holds"),
        ("uneven", "steps-only", "a batch of 5 samples does not divide by 2 devices"),
        ("odd_end", "steps-only", "a batch of 5 samples does not divide by 2 devices"),
        ("dropped_end", "exact", None),
        ("endless", "exact", None),
        ("unknown_end", "steps-only", "a batch of the data pipeline may not divide"),
        ("unknown_length", "steps-only", "past the end of data of unknown length"),
        ("told_length", "exact", None),
        ("length_in_steps", "exact", None),
        ("unknown_alone", "exact", "chooses its devices itself: it uses 1 of 2"),
        ("rebatched", "steps-only", "the batches as they were before rebatch"),
        ("rebatched_alone", "steps-only", "the batches as they were before rebatch"),
        ("rebatched_unsharded", "exact", None),
        ("rebatched_to_odd", "steps-only", "a batch of the data pipeline may not divide"),
        ("rebatched_without_strategy", "exact", "no distribution strategy"),
        ("batched_inside", "steps-only", "a batch of the data pipeline may not divide"),
        ("whole_batches_inside", "exact", None),
        ("cached_order", "steps-only", "caches what it has shuffled"),
        ("shuffled_cache", "exact", None),
        ("repeated_orders", "steps-only", "repeats what it has shuffled"),
        ("shuffled_repeats", "exact", None),
        ("inner_shuffle", "steps-only", "a function of the data pipeline shuffles"),
        ("seeded_inner_shuffle", "exact", None),
        ("hidden_shuffle", "steps-only", "a function of the data pipeline reads shuffled data"),
        ("hidden_order", "exact", None),
        ("hidden_python", "steps-only", "pipeline calls Python"),
        ("hidden_generator", "steps-only", "pipeline calls Python"),
        ("random_map", "steps-only", "pipeline draws stateful random numbers"),
        ("python_map", "steps-only", "pipeline calls Python"),
        ("noisy_map", "exact", None),
        ("noisy_map_before_threads", "exact", None),
        ("parallel_noisy_map", "steps-only", "changes variables (a seed, say) in parallel calls"),
        ("parallel_scaling_map", "exact", None),
        ("noise_in_threads", "steps-only", "several threads of the data pipeline change the same"),
        ("hidden_parallel_noise", "steps-only", "in parallel calls"),
        ("noise_of_step", "steps-only", "pipeline and the training step use the same variables"),
        ("noise_of_validation", "steps-only", "validation data change variables of the training"),
        ("filled_table", "steps-only", "changes a lookup table"),
        ("unordered", "steps-only", "deterministic=False"),
        ("ordered", "exact", None),
        ("sampled", "steps-only", "samples without a seed"),
        ("seeded_sample", "exact", None),
        ("generator", "steps-only", "Python generator"),
        ("shuffled_sequence", "exact", None),
        ("shuffled_workers", "steps-only", "PyDataset is shuffled"),
        ("changed_while_read", "steps-only", "changes itself in on_epoch_end while Keras reads it"),
        ("changed_between", "exact", None),
        ("sequence", "exact", None),
        ("workers", "steps-only", "a PyDataset with workers ahead of its epochs"),
        ("repeating_shuffle", "steps-only", "uses shuffle_and_repeat"),
        ("drawn_beside", "steps-only", "draws from the shuffled data of the training"),
        ("drawn_elsewhere", "exact", None),
        ("own_step", "steps-only", "the train_step of the script may add its loss up"),
        ("dividing_step", "exact", None),
        ("step_by_loss", "exact", None),
        ("own_loss", "steps-only", "the compute_loss of the script may add its loss up"),
        ("extended_step", "exact", None),
        ("step_without_strategy", "exact", "no distribution strategy"),
        ("eager", "steps-only", "the training step runs eagerly"),
    ],
)
def test_the_trajectory_is_judged_with_its_reason(
    verdicts: dict[str, tuple[str, str]], case: str, kind: str, reason: str | None
) -> None:
    found, why = verdicts[case]
    assert found == kind, why
    if reason is None:
        assert why == "None"
    else:
        assert reason in why
