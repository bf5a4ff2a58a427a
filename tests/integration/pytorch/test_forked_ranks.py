"""Ranks that are forks of a process with PyTorch imported: as cold ones, only faster."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.wire import Mode, Observed, Phase, Processes, StandbyState, StartKind
from tests.support import coordinator_double, sidecar_bed
from tests.support.daemon_bed import ROOT
from tests.support.pytorch_bed import EXAMPLES, PYTHON
from tests.support.worlds import assert_same_with_torch, worlds
from tests.support.zygote_bed import PATIENCE_S, ZygoteBed, zygote_bed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(900)]

RANKS = 2
FORKS = 3
SCRIPTS = Path(__file__).parent / "scripts"
ITEMS = Path(__file__).parents[1] / "tensorflow" / "scripts" / "world_items.py"
SAY = """
def say(line: str) -> None:
    with open("world-" + os.environ["RANK"], "a") as file:
        file.write(line + "\\n")


class Sample"""
JOINS_GROUP = """
    import torch._dynamo  # the first optimizer does, and its modules keep a group that is there

    torch.distributed.init_process_group("gloo")
    model ="""
LEAVES_GROUP = """
    import gc

    torch.distributed.destroy_process_group()
    gc.collect()
    after ="""
TRAIN = """
import os
files = [number for number in sorted(os.listdir("/proc/self/fd")) if int(number) < 200]
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
drawn = torch.rand(1).item()
rank = int(os.environ["LOCAL_RANK"])
def say(*words):
    os.write(1, (" ".join(map(str, ("rank", rank, *words))) + "\\n").encode())
say("files", *files)
say("threads", torch.get_num_threads(), "of", os.environ["OMP_NUM_THREADS"])
say("drew", drawn)
say("may use", os.environ["RESHAPE_DEVICES"].split(",")[rank])
torch.manual_seed(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.3)))
optimizer = torch.optim.Adam(model.parameters())
torch.manual_seed(7 + rank)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = model(torch.rand(128, 64)).square().mean()
    loss.backward()
    optimizer.step()
    if step < 5:
        say("step", step, loss.item())
dist.destroy_process_group()
"""
ABORT = r"^(terminate called without an active exception|.* aborted after its script: .*)\n"
"""What a rank and its parent say if PyTorch aborts as Python ends, as a cold rank does now and
then."""
TRAINER = """
import os, sys
import torch
import accelerate
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
from transformers import TrainingArguments, set_seed
rank = os.environ["RANK"]
def say(*words):
    os.write(1, (" ".join(map(str, ("rank", rank, *words))) + "\\n").encode())
class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            say("loss", state.global_step, logs["loss"])
set_seed(3)
say("imported", *sorted(name for name in sys.modules if "reshape" not in name))
config = BertConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
)
rows = [{"input_ids": torch.tensor([n % 64] * 12), "labels": n % 2} for n in range(64)]
told = TrainingArguments(
    "out", use_cpu=True, report_to="none", disable_tqdm=True, max_steps=3, logging_steps=1,
    save_strategy="no",
)
Trainer(
    BertForSequenceClassification(config), told, train_dataset=rows, callbacks=[Losses()]
).train()
say("class", sys.modules[Trainer.__module__].Trainer is Trainer)
say("trained", *sorted(name for name in sys.modules if "reshape" not in name))
"""
IMPORTS_TRAINER = """
    import torch
    import accelerate
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
    from transformers import TrainingArguments, set_seed
"""
LEFT_OUT = "import torch\nimport accelerate\n"
SETS_FOR_LIBRARIES = """
os.environ["HF_HUB_DISABLE_TELEMETRY"] = str(1)
import accelerate"""
SETS = """
import os
os.write(1, b"ABOVE\\n")
os.environ["OMP_NUM_THREADS"] = str(1 + 1)
"""
STOPS_FORKING = """
import os, sys
forks, fork = [], os.fork
def counted():
    if any(word.endswith("ranks/run.py") for word in sys.orig_argv):
        forks.append(1)
        if len(forks) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = counted
"""


def ranks_bed(path: Path, site: str = "") -> contextlib.AbstractContextManager[ZygoteBed]:
    found = ":".join(filter(None, (site, str(ROOT / "sidecar"))))
    return zygote_bed(
        *(path, 30.0, Processes.PER_GPU),
        framework="pytorch",
        python=str(PYTHON),
        PYTHONPATH=found,
    )


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZygoteBed]:
    with ranks_bed(tmp_path_factory.mktemp("ranks")) as made:
        made.script("train.py", TRAIN.replace("STEPS", "5"))
        made.script("endless.py", TRAIN.replace("STEPS", "10**9"))
        zygote = made.ready("train.py")
        assert zygote.state is StandbyState.READY, zygote.reason
        yield made


def of_ranks(bed: ZygoteBed, *words: str, cold: bool = False) -> tuple[TrainingProcess, str]:
    """Run ``words`` to the end; return the process, and the output in the order of its lines."""
    ended, output = bed.run(*words, devices=RANKS, cold=cold)
    return ended, in_order(without(ABORT, output) if ended.how is StartKind.COLD else output)


def in_order(output: str) -> str:
    return "\n".join(sorted(output.splitlines()))


def without(pattern: str, text: str) -> str:
    return re.sub(pattern, "", text, flags=re.M)


@pytest.mark.gate
def test_each_rank_sees_the_world_of_a_cold_start(bed: ZygoteBed) -> None:
    text = (SCRIPTS / "world_torch.py").read_text()
    for old, new in (
        ("\n\nclass Sample", SAY),
        ('print("WORLD', 'say("WORLD'),
        ("register(print", "register(say"),
        ("sys.exit(3)", "sys.exit(0)"),
        ("    model =", JOINS_GROUP),
        ("    after =", LEAVES_GROUP),
    ):
        assert old in text
        text = text.replace(old, new)
    bed.script("world.py", text)
    shutil.copy(ITEMS, bed.code)
    found: dict[bool, list[Any]] = {}
    for cold in (False, True):
        ended, output = bed.run("world.py", "argument", devices=RANKS, cold=cold)
        assert (ended.exit_code, output) == (0, ""), output
        assert ended.how is (StartKind.COLD if cold else StartKind.ZYGOTE), ended.fallback
        files = [bed.code / f"world-{rank}" for rank in range(RANKS)]
        found[cold] = [worlds(file.read_text()) for file in files]
        for file in files:
            file.unlink()
    for rank in range(RANKS):
        one, other = found[False][rank], found[True][rank]
        assert one["before"]["environ"]["RANK"] == str(rank)
        assert_same_with_torch(one, other)


@pytest.fixture(scope="module")
def with_trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZygoteBed]:
    """A zygote that has imported what a script for Trainer takes from its libraries."""
    with ranks_bed(tmp_path_factory.mktemp("trainer")) as made:
        made.script("train.py", TRAINER)
        zygote = made.ready("train.py")
        assert zygote.state is StandbyState.READY, zygote.reason
        yield made


def test_a_rank_sees_the_world_of_a_cold_start_where_its_zygote_has_imported_trainer(
    with_trainer: ZygoteBed,
) -> None:
    bed, text = with_trainer, (SCRIPTS / "world_torch.py").read_text()
    for old, new in (
        ("\n\nclass Sample", SAY),
        ('print("WORLD', 'say("WORLD'),
        ("register(print", "register(say"),
        ("sys.exit(3)", "sys.exit(0)"),
        ("    import torch\n\n    torch.manual", f"{IMPORTS_TRAINER}\n    torch.manual"),
        ("    model =", JOINS_GROUP),
        ("    after =", LEAVES_GROUP),
    ):
        assert old in text
        text = text.replace(old, new)
    bed.script("world.py", text)
    shutil.copy(ITEMS, bed.code)
    found = {}
    for cold in (False, True):
        ended, output = bed.run("world.py", "argument", devices=RANKS, cold=cold)
        assert (ended.exit_code, output) == (0, ""), output
        assert ended.how is (StartKind.COLD if cold else StartKind.ZYGOTE), ended.fallback
        found[cold] = world = worlds((bed.code / "world-1").read_text())
        for part in ("imports", "trained"):  # Python has its codec without its module
            world[part]["modules"] = [m for m in world[part]["modules"] if m != "encodings.ascii"]
        for rank in range(RANKS):
            (bed.code / f"world-{rank}").unlink()
    assert_same_with_torch(found[False], found[True])


def test_trainer_trains_in_forks_that_have_imported_it_as_in_cold_ranks(
    with_trainer: ZygoteBed,
) -> None:
    forked, output = of_ranks(with_trainer, "train.py")
    assert (forked.how, forked.exit_code) == (StartKind.ZYGOTE, 0), forked.fallback or output
    shutil.rmtree(with_trainer.checkpoints)
    cold, as_cold = of_ranks(with_trainer, "train.py", cold=True)
    assert cold.exit_code == 0, as_cold
    for line, wanted in zip(*map(lines_of_ranks, (output, as_cold)), strict=True):
        assert line == wanted, set(line.split()) ^ set(wanted.split())
    assert len(re.findall(r"rank \d loss", output)) == RANKS * 3, output


def lines_of_ranks(output: str) -> list[str]:
    """What ranks say, sorted; a library may print without a line end before."""
    found = re.findall(r"rank \d (?:class|imported|loss|trained) .*", output)
    return sorted(line.replace("encodings.ascii ", "") for line in found)


def test_a_variable_that_the_library_reads_is_compared_at_its_import(tmp_path: Path) -> None:
    with ranks_bed(tmp_path) as bed:
        bed.script("train.py", TRAINER.replace("import accelerate", SETS_FOR_LIBRARIES))
        zygote = bed.ready("train.py")
        assert zygote.state is StandbyState.READY, zygote.reason
        ended, output = of_ranks(bed, "train.py")
        assert ended.exit_code == 0, output
        assert ended.how is StartKind.COLD
        assert "the script sets HF_HUB_DISABLE_TELEMETRY above its imports" in (
            ended.fallback or ""
        )


def test_a_library_that_cannot_be_forked_is_left_out_of_the_zygote(tmp_path: Path) -> None:
    library = tmp_path / "site" / "accelerate"
    library.mkdir(parents=True)
    library.joinpath("__init__.py").write_text(
        "import os, threading, time\n"
        "os.environ['OMP_SEEN'] = 'set by the import'\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    with ranks_bed(tmp_path / "bed", str(library.parent)) as bed:
        bed.script("train.py", TRAIN.replace("STEPS", "5").replace("import torch\n", LEFT_OUT, 1))
        zygote = bed.ready("train.py")
        assert zygote.state is StandbyState.READY, zygote.reason
        ended, output = of_ranks(bed, "train.py")
        assert (ended.how, ended.exit_code) == (StartKind.ZYGOTE, 0), ended.fallback or output
        assert output.count("step 4") == RANKS
        log = (bed.folder.logs / "zygote.log").read_text()
        assert "zygote: without accelerate: the import of the framework has started 1 thread" in log


def test_forked_ranks_train_to_the_last_bit_as_cold_ones(bed: ZygoteBed) -> None:
    drew, kept = r"^rank \d drew (\S+)\n", set()
    drawn: list[str] = []
    for cold in (*[False] * FORKS, True):
        ended, output = of_ranks(bed, "train.py", cold=cold)
        assert ended.exit_code == 0, output
        assert ended.how is (StartKind.COLD if cold else StartKind.ZYGOTE), ended.fallback
        drawn += re.findall(drew, output, re.M)
        kept.add(without(drew, output))
    assert len(kept) == 1, kept
    lines = kept.pop()
    for rank in range(RANKS):
        assert f"rank {rank} threads 1 of 1" in lines
        assert f"rank {rank} may use GPU-{rank}" in lines
    assert len(set(re.findall(r"step 4 (\S+)", lines))) == RANKS
    starts = FORKS + 1
    assert len(set(drawn)) == len(drawn) == starts * RANKS, "each rank of each start draws itself"


def trains(bed: ZygoteBed) -> tuple[TrainingProcess, dict[int, int]]:
    """Start ranks that train without end; return their parent, and their pids once they step."""
    began = bed.start("endless.py", devices=RANKS)
    assert began.how is StartKind.ZYGOTE, began.fallback
    bed.until("steps", lambda: bed.log(begin_bytes=began.log_offset_bytes).count("step 4") == RANKS)
    return began, pids(began.pid)


def pids(parent: int) -> dict[int, int]:
    """The process of each rank, as the kernel shows them."""
    found = [one.pid for one in proc.descendants(parent, proc.snapshot()) if one.parent == parent]
    shown = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in found}
    return {
        next(rank for rank in range(RANKS) if f"RANK={rank}".encode() in words): pid
        for pid, words in shown.items()
    }


def all_gone(began: TrainingProcess, ranks: dict[int, int]) -> Callable[[], bool]:
    """Whether none runs. One that nobody has reaped yet runs no more, and holds no device."""

    def runs(pid: int) -> bool:
        found = proc.read(pid)
        return found is not None and not found.zombie

    return lambda: not any(map(runs, (began.pid, *ranks.values())))


@pytest.mark.parametrize("killed", range(RANKS))
def test_the_kill_of_a_rank_ends_the_others_at_once(bed: ZygoteBed, killed: int) -> None:
    began, ranks = trains(bed)
    assert set(ranks) == set(range(RANKS))
    os.kill(ranks[killed], signal.SIGKILL)
    at_s = time.monotonic()
    assert bed.ended().exit_code == 128 + signal.SIGKILL
    bed.until("no rank", all_gone(began, ranks))
    assert time.monotonic() - at_s < 5
    said = f"reshape: rank {killed} of 2 (pid {ranks[killed]}) was ended by signal 9"
    assert f"{said}, and 1 others end with it" in bed.log()


def test_no_rank_outlives_the_kill_of_their_parent(bed: ZygoteBed) -> None:
    began, ranks = trains(bed)
    os.kill(began.pid, signal.SIGKILL)
    at_s = time.monotonic()
    bed.until("no rank", all_gone(began, ranks))
    assert time.monotonic() - at_s < 5
    assert bed.ended().exit_code == 128 + signal.SIGKILL


def test_a_sweep_ends_every_forked_rank(bed: ZygoteBed) -> None:
    """R4: init counts the devices as free once the ranks are gone, and the zygote is no rank."""
    began, ranks = trains(bed)
    zygote = bed.zygote().pid
    bed.sweep(0.0)
    assert all_gone(began, ranks)()
    assert bed.zygote().pid == zygote


def test_ranks_train_on_without_their_zygote_and_the_next_start_is_cold(tmp_path: Path) -> None:
    with ranks_bed(tmp_path) as bed:
        bed.script("train.py", TRAIN.replace("STEPS", "5"))
        bed.script("endless.py", TRAIN.replace("STEPS", "10**9"))
        assert bed.ready("train.py").state is StandbyState.READY
        began, ranks = trains(bed)
        zygote = bed.zygote()
        os.kill(zygote.pid, signal.SIGKILL)
        bed.gone(zygote.pid, zygote.start_time)
        time.sleep(0.5)
        assert pids(began.pid) == ranks
        bed.sweep(0.0)
        ended, output = of_ranks(bed, "train.py")
        assert (ended.how, ended.exit_code) == (StartKind.COLD, 0), output
        assert ended.fallback == "the zygote ended with exit code 137"


def test_ranks_whose_script_sets_its_threads_start_cold_in_their_place(tmp_path: Path) -> None:
    """Rank 0 keeps the socket at which they meet."""
    with ranks_bed(tmp_path) as bed:
        bed.script("sets.py", SETS + TRAIN.replace("STEPS", "5"))
        assert bed.ready("sets.py").state is StandbyState.READY
        ended, output = of_ranks(bed, "sets.py")
        assert (ended.how, ended.exit_code) == (StartKind.COLD, 0), output
        assert ended.fallback == "the script sets OMP_NUM_THREADS above its imports"
        assert output.count("ABOVE") == 2 * RANKS
        assert output.count("threads 2 of 2") == RANKS
        executed, cold = of_ranks(bed, "sets.py", cold=True)
        assert executed.exit_code == 0
        changes = r"^(ABOVE|rank \d drew \S+)\n"
        assert without(changes, output) == without(changes, cold)


def test_a_parent_that_cannot_fork_its_ranks_starts_them_cold(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(STOPS_FORKING)
    with ranks_bed(tmp_path, str(site)) as bed:
        bed.script("train.py", TRAIN.replace("STEPS", "5"))
        assert bed.ready("train.py").state is StandbyState.READY
        ended, output = of_ranks(bed, "train.py")
        assert (ended.how, ended.exit_code) == (StartKind.COLD, 0), output
        assert ended.fallback is not None
        assert ended.fallback.startswith("a rank cannot be forked: [Errno 11]")
        assert output.count("step 4") == RANKS


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import os, sys; sys.exit(5 if os.environ['RANK'] == '1' else 0)", 5),
        ("import os\nif os.environ['RANK'] == '0':\n    raise ValueError('HERE')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import warnings; warnings.warn('HERE')", 0),
    ],
)
def test_a_script_ends_as_in_cold_ranks(bed: ZygoteBed, script: str, code: int) -> None:
    bed.script("ends.py", script)
    by_zygote, by_interpreter = bed.run_both(code, "ends.py", devices=RANKS)
    changes = r"rank \d (?:of 2 )?\(pid \d+\)|, and 1 others end with it"
    cold = without(ABORT, by_interpreter)
    assert without(changes, in_order(by_zygote)) == without(changes, in_order(cold))


TRAINERS = {
    "hf_train.py": (
        *("--output_dir", "out", "--use_cpu", "--report_to", "none", "--save_strategy", "no"),
        *("--max_steps", "6", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    ),
    "lightning_fit.py": ("--epochs", "1", "--workers", "0"),
}
LOSSES = {"hf_train.py": r"(?:step|trained|weights) .*", "lightning_fit.py": r"^batch .*"}


@pytest.mark.parametrize("script", TRAINERS)
def test_an_unmodified_script_of_a_library_trains_in_forks_as_in_cold_ranks(
    bed: ZygoteBed, script: str
) -> None:
    shutil.copy(SCRIPTS / script, bed.code)
    found = []
    for cold in (False, True):
        shutil.rmtree(bed.checkpoints, ignore_errors=True)
        bed.checkpoints.mkdir()
        ended, output = bed.run(script, *TRAINERS[script], devices=RANKS, cold=cold)
        assert (ended.how is StartKind.COLD, ended.exit_code) == (cold, 0), (ended, output)
        found.append(re.findall(LOSSES[script], output, re.M))
    assert len(found[0]) >= 6
    assert found[0] == found[1]


@pytest.mark.gate
def test_an_attempt_starts_and_reshapes_forked_ranks_and_reports_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised(
            (EXAMPLES / "train.py").read_text(),
            framework="pytorch",
            processes=Processes.PER_GPU,
            command=(str(PYTHON), "train.py", "--epochs", "1000", "--workers", "0"),
        )
        for restarts, size in enumerate((2, 1, 2)):
            devices = sidecar_bed.DEVICES[:size]
            bed.coordinator.want(Mode.RUN, *devices)
            report = bed.coordinator.until(
                f"training on {size} devices", functools.partial(trains_on, devices)
            )
            assert (report.times.how, report.times.fallback) == (StartKind.ZYGOTE, None)
            assert report.standby is not None
            assert report.standby.state is StandbyState.READY
            assert report.process_restarts == restarts
            assert set(pids(bed.process().pid)) == set(range(size))
        steps = [int(step) for step in re.findall(r"^step (\d+) loss", bed.log(), re.M)]
        assert steps == [*range(1, len(steps) + 1)], "each step is made once"


def trains_on(devices: tuple[str, ...], report: Observed) -> bool:
    return report.phase is Phase.RUNNING and report.devices == devices
