"""A new PyTorch record has one process per GPU if its script shows that it trains so."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.cli.jobs.submit import read_record
from reshape_controller.core.model import Framework, JobSpec
from reshape_controller.records import RecordInvalid, parse_record
from reshape_controller.records.script_modules import MODULES_MAX, SCRIPT_BYTES_MAX
from reshape_sidecar import codec
from reshape_sidecar.wire import Processes
from tests.support.hostile_texts import HOSTILE

BATCHES = """
from reshape_sidecar import session
job = session.start()
for batch in job.batches(loader, model=model, optimizer=optimizer):
    pass
"""
TRAINER = "from transformers import Trainer\nTrainer(model=model).train()\n"
OWN_TRAINER = "import transformers as t\nclass Mine(t.Trainer):\n    pass\nMine().train()\n"
TRL = "from trl import DPOTrainer\nDPOTrainer(model=model).train()\n"
ACCELERATE = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
LIGHTNING = "import lightning as L\nL.Trainer(max_epochs=2, devices='auto').fit(model)\n"
LIGHTNING_1 = "import pytorch_lightning as pl\npl.Trainer(devices=-1).fit(model)\n"
GROUP = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
NUMBERED = """
import os, torch
torch.distributed.init_process_group(
    "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
)
"""
SPAWNS = GROUP + "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)\n"
STARTS = GROUP + "from torch.multiprocessing import Process\nProcess(target=main).start()\n"
CONTEXT = "import multiprocessing as m\nc = m.get_context('spawn')\nc.Process(target=f)\n" + TRAINER
DEVICES = "from lightning.pytorch import Trainer\nTrainer(devices=4).fit(model)\n"
COUNTED = (
    "import torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=2)\n"
)
SESSION = "from reshape_sidecar import session\njob = session.start()\n" + GROUP
OTHER_PROCESS = GROUP + "import psutil\npsutil.Process().memory_info()\n"


def parsed(folder: Path, text: str, **record: Any) -> JobSpec:
    (folder / "train.py").write_text(text)
    (folder / "pkg").mkdir(exist_ok=True)
    (folder / "pkg" / "train.py").write_text(text)
    whole = {"name": "a", "command": "python train.py", "optional_gpus": [1, 2]}
    return parse_record({**whole, "framework": "pytorch", **record}, folder=folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BATCHES, "its script calls job.batches (line 4)"),
        (TRAINER, "its script has a Trainer of Hugging Face (line 2)"),
        (OWN_TRAINER, "its script has a Trainer of Hugging Face (line 2)"),
        (TRL, "its script has a Trainer of Hugging Face (line 2)"),
        (ACCELERATE, "its script joins a process group from the environment (line 2)"),
        (LIGHTNING, "its script has a Trainer of Lightning (line 2)"),
        (LIGHTNING_1, "its script has a Trainer of Lightning (line 2)"),
        (GROUP, "its script joins a process group from the environment (line 2)"),
        (NUMBERED, "its script joins a process group from the environment (line 3)"),
        (OTHER_PROCESS, "its script joins a process group from the environment (line 2)"),
    ],
)
def test_a_script_of_an_understood_form_has_one_process_per_gpu(
    tmp_path: Path, text: str, reason: str
) -> None:
    for command in ("python train.py", "python -m pkg.train"):
        spec = parsed(tmp_path, text, command=command)
        assert (spec.processes, spec.processes_reason) == (Processes.PER_GPU, reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SPAWNS, "its script starts processes itself (line 4)"),
        (STARTS, "its script starts processes itself (line 4)"),
        (CONTEXT, "its script starts processes itself (line 3)"),
        (DEVICES, "its script has a number of processes of its own (line 2)"),
        (COUNTED, "its script has a number of processes of its own (line 2)"),
        (SESSION, "its script calls the session API"),
        ("import torch\n", "its script joins no process group"),
        ("import (", "cannot be read as Python: SyntaxError"),
        ("(" * 5000, "cannot be read as Python: "),
        ("#" * (SCRIPT_BYTES_MAX + 1), f"is longer than {SCRIPT_BYTES_MAX} bytes"),
    ],
)
def test_another_script_has_one_process_and_the_reason_says_why(
    tmp_path: Path, text: str, reason: str
) -> None:
    spec = parsed(tmp_path, text)
    assert spec.processes is Processes.ONE
    assert reason in spec.processes_reason


USES = {
    "from lib.fit import run\nrun()\n": "lib/fit.py, line 4",
    "from lib import again as r\nr()\n": "lib/fit.py, line 4",
    "import lib.fit\nlib.fit.run()\n": "lib/fit.py, line 4",
    "def main():\n    from lib.fit import run\n    run()\nmain()\n": "lib/fit.py, line 4",
    "from lib.fit import *\nrun()\n": "lib/fit.py, line 4",
    "from lib.own import Mine\nMine().train()\n": "lib/own.py, line 2",
    "import lib.top\n": "lib/top.py, line 2",
    "from lib.common import *\nTrainer().train()\n": "line 2",
    "from lib.common import Trainer\nclass Mine(Trainer): ...\n": "line 2",
    "from lib.derived import *\nMine().train()\n": "lib/derived.py, line 2",
}
UNUSED = (
    "from lib.fit import Net\nNet()\n",
    "import lib.fit\n",
    "from lib.round import about\nabout()\n",
    "import elsewhere.fit\nelsewhere.fit.run()\n",
    "from lib.broken import run\nrun()\n",
    "from lib.ring import turn\nturn()\n",
    "from . import nothing\nnothing.x()\n(1).real\n",
)
LIBRARY = {
    "__init__.py": "from .fit import run as again\n",
    "fit.py": "from transformers import Trainer\n\ndef made():\n    return Trainer()\n\n"
    "def run():\n    made().train()\n\nclass Net: ...\n\n"
    "if __name__ == '__main__':\n    run()\n",
    "own.py": OWN_TRAINER.replace("Mine().train()", ""),
    "top.py": TRAINER,
    "round.py": "from lib.circle import about\n",
    "circle.py": "from lib.round import about\n",
    "common.py": "import os\nfrom transformers import Trainer, TrainingArguments\n",
    "derived.py": "from lib.common import *\nclass Mine(Trainer): ...\n",
    "ring.py": "from lib.wheel.turn import turn\n",
    "wheel.py": "from lib.ring.turn import turn\n",
    "broken.py": "import (",
}


def with_library(folder: Path, text: str, **record: Any) -> JobSpec:
    (folder / "lib").mkdir(exist_ok=True)
    for name, content in LIBRARY.items():
        (folder / "lib" / name).write_text(content)
    return parsed(folder, text, **record)


@pytest.mark.parametrize("text", USES)
def test_a_trainer_that_the_script_uses_of_a_module_counts(tmp_path: Path, text: str) -> None:
    for command in ("python train.py", "python pkg/train.py", "python -m pkg.train"):
        spec = with_library(tmp_path, text, command=command)
        reason = f"its script has a Trainer of Hugging Face ({USES[text]})"
        assert (spec.processes, spec.processes_reason) == (Processes.PER_GPU, reason)


@pytest.mark.parametrize("text", UNUSED)
def test_a_trainer_that_the_script_does_not_use_counts_not(tmp_path: Path, text: str) -> None:
    spec = with_library(tmp_path, text)
    assert spec.processes is Processes.ONE
    assert spec.processes_reason == "its script joins no process group"


def test_relative_imports_and_a_source_folder_are_followed(tmp_path: Path) -> None:
    for folder in ("pkg/inner", "src/lib2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "pkg" / "fit.py").write_text(LIBRARY["fit.py"])
    (tmp_path / "pkg" / "inner" / "deep.py").write_text("from ..fit import run as go\n")
    (tmp_path / "src" / "lib2" / "fit.py").write_text(LIBRARY["fit.py"])
    for text, file in (
        ("from .fit import run\nrun()\n", "pkg/fit.py"),
        ("from .inner.deep import go\ngo()\n", "pkg/fit.py"),
        ("from .inner import deep\ndeep.go()\n", "pkg/fit.py"),
        ("from lib2 import fit\nfit.run()\n", "lib2/fit.py"),
    ):
        spec = parsed(tmp_path, text, command="python -m pkg.train")
        assert spec.processes_reason == f"its script has a Trainer of Hugging Face ({file}, line 4)"


def test_a_module_counts_less_than_the_script_and_more_than_its_session(tmp_path: Path) -> None:
    loop = "def fit(job):\n    for b in job.batches(data, model=m, optimizer=o): ...\n"
    (tmp_path / "loop.py").write_text(loop)
    (tmp_path / "spawns.py").write_text(SPAWNS)
    spec = parsed(tmp_path, SESSION + "from loop import fit\nfit(job)\n")
    assert spec.processes_reason == "its script calls job.batches (loop.py, line 2)"
    assert parsed(tmp_path, TRAINER + "import spawns\n").processes is Processes.PER_GPU
    spec = parsed(tmp_path, "import spawns, loop\nloop.fit(None)\n")
    assert spec.processes_reason == "its script starts processes itself (spawns.py, line 4)"


def test_a_program_of_many_modules_is_read_up_to_a_bound(tmp_path: Path) -> None:
    for number in range(MODULES_MAX + 1):
        following = f"import m{number + 1}\n" if number < MODULES_MAX else TRAINER
        (tmp_path / f"m{number}.py").write_text(following)
    assert parsed(tmp_path, "import m1\n").processes is Processes.PER_GPU
    spec = parsed(tmp_path, "import m0\n")
    assert spec.processes is Processes.ONE
    assert f"(as far as {MODULES_MAX} of its modules show)" in spec.processes_reason


def test_a_launcher_is_left_out_and_its_script_runs_once_for_each_gpu(tmp_path: Path) -> None:
    launch = "accelerate launch --mixed_precision bf16 train.py --lr 1"
    spec = parsed(tmp_path, "import torch\n", command=launch, env={"A": "1"})
    assert (spec.command, spec.processes) == (
        ("python", "train.py", "--lr", "1"),
        Processes.PER_GPU,
    )
    assert spec.env == (("A", "1"), ("ACCELERATE_MIXED_PRECISION", "bf16"))
    assert spec.processes_reason == "accelerate launch starts one for each GPU"
    for told in ({"processes": "one"}, {"framework": "other"}):
        kept = parsed(tmp_path, "import torch\n", **{"command": "torchrun train.py", **told})
        assert (kept.command, kept.processes) == (("torchrun", "train.py"), Processes.ONE)
        assert kept.processes_reason == ""


def test_a_launcher_whose_options_contradict_stays_and_the_reason_names_them(
    tmp_path: Path,
) -> None:
    command = "torchrun --nproc-per-node 2 train.py"
    spec = parsed(tmp_path, GROUP, command=command)
    assert (spec.command, spec.processes) == (tuple(command.split()), Processes.ONE)
    assert "--nproc-per-node 2 is a number of processes of its own" in spec.processes_reason


def test_under_a_launcher_one_process_may_have_the_session_alone(tmp_path: Path) -> None:
    spec = parsed(tmp_path, SESSION, command="torchrun train.py")
    assert (spec.command, spec.processes) == (("torchrun", "train.py"), Processes.ONE)


def test_the_record_decides_if_it_says_so(tmp_path: Path) -> None:
    for processes in Processes:
        spec = parsed(tmp_path, GROUP, processes=processes.value)
        assert (spec.processes, spec.processes_reason) == (processes, "")
    spec = parsed(tmp_path, "import torch\n", processes="per-gpu", command="torchrun train.py")
    assert (spec.command, spec.processes) == (("python", "train.py"), Processes.PER_GPU)


def test_a_script_that_cannot_be_read_here_has_one_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GROUP)
    record = {"name": "a", "command": "python train.py", "optional_gpus": [1]}
    record |= {"framework": "pytorch", "code": str(tmp_path)}
    assert parse_record(record, looks=True).processes is Processes.PER_GPU
    not_read = parse_record(record)
    assert not_read.processes is Processes.ONE
    assert "train.py is not read here; write `processes: per-gpu`" in not_read.processes_reason
    elsewhere = parse_record({**record, "code": "/on/another/host"}, looks=True)
    assert elsewhere.processes is Processes.ONE
    assert "train.py is not on this machine" in elsewhere.processes_reason
    (tmp_path / "train.py").unlink()
    os.mkfifo(tmp_path / "pkg.py")
    record["command"] = "python -m pkg"
    assert parse_record(record, looks=True).processes is Processes.ONE, "a pipe is not read"


def test_workers_are_processes_of_their_own(tmp_path: Path) -> None:
    spec = parsed(tmp_path, GROUP, workers=2, optional_gpus=[2, 4])
    assert (spec.processes, spec.processes_reason) == (
        Processes.ONE,
        "its 2 workers are processes of their own",
    )


def test_a_stored_record_keeps_its_processes(tmp_path: Path) -> None:
    """One of the release before has no such field, and is not judged by its script again."""
    (tmp_path / "train.py").write_text(GROUP)
    before = '{"name":"a","command":["python","train.py"],"optional_gpus":[1,2],' + (
        f'"framework":"pytorch","code":"{tmp_path}","type":"JobSpec"}}'
    )
    stored = codec.loads(JobSpec, before)
    assert (stored.processes, stored.processes_reason) == (Processes.ONE, "")
    assert '"processes' not in codec.dumps(stored)


def test_a_client_reads_the_script_for_a_daemon_that_may_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GROUP)
    (tmp_path / "job.yaml").write_text(
        "name: a\ncommand: torchrun train.py\nframework: pytorch\noptional_gpus: [1, 2]\n"
    )
    sent = read_record(str(tmp_path / "job.yaml"))
    assert (sent["processes"], sent["command"]) == ("per-gpu", "torchrun train.py")
    spec = parse_record(sent)
    assert (spec.command, spec.processes) == (("python", "train.py"), Processes.PER_GPU)
    (tmp_path / "train.py").write_text(SPAWNS)
    assert "processes" not in read_record(str(tmp_path / "job.yaml"))


def test_a_client_sends_the_framework_that_the_script_shows(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    (tmp_path / "job.yaml").write_text("name: a\ncommand: python train.py\noptional_gpus: [1]\n")
    sent = read_record(str(tmp_path / "job.yaml"))
    assert (sent["framework"], "processes" in sent) == ("pytorch", False)
    (tmp_path / "train.py").write_text("import keras\n")
    assert "framework" not in read_record(str(tmp_path / "job.yaml"))


@pytest.mark.parametrize(
    ("text", "framework", "processes"),
    [
        (TRAINER, Framework.PYTORCH, Processes.PER_GPU),
        (GROUP, Framework.PYTORCH, Processes.PER_GPU),
        (SPAWNS, Framework.PYTORCH, Processes.ONE),
        ("def f():\n    import torch.nn as nn\n", Framework.PYTORCH, Processes.ONE),
        ("import net\n", Framework.PYTORCH, Processes.ONE),
        ("import os, keras\nos.environ['KERAS_BACKEND'] = 'torch'\nimport torch\n", None, None),
        ("import tensorflow as tf\nfrom transformers import TFBertModel\n", None, None),
        ("import both\n", None, None),
        ("import jax\n", None, None),
        ("if x:\n", None, None),
    ],
)
def test_a_record_without_a_framework_has_that_of_its_program(
    tmp_path: Path, text: str, framework: Framework | None, processes: Processes | None
) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\n")
    (tmp_path / "both.py").write_text("import torch, tensorflow\n")
    spec = parsed(tmp_path, text, framework=None)
    assert spec.framework is (framework or Framework.KERAS)
    assert spec.processes is (processes or Processes.ONE)


def test_a_command_of_any_words_is_parsed_or_refused() -> None:
    words = ("/", "./", "//", ".", "..", *HOSTILE)
    forms = ([w] for w in words), ([w, w] for w in words), (["torchrun", w] for w in words)
    python = ([*head, w] for w in words for head in (["python"], ["python", "-m"]))
    for command in itertools.chain(*forms, python):
        for framework in (None, "pytorch"):
            record = {"name": "a", "optional_gpus": [1], "code": "/code", "command": command}
            with contextlib.suppress(RecordInvalid):
                spec = parse_record({**record, "framework": framework})
                assert spec.command == tuple(command) or command[0] == "torchrun"


def test_a_launcher_of_pytorch_needs_no_framework_and_a_named_one_stays(tmp_path: Path) -> None:
    torchrun = parsed(tmp_path, "import both\n", framework=None, command="torchrun train.py")
    assert (torchrun.framework, torchrun.processes) == (Framework.PYTORCH, Processes.PER_GPU)
    each = parsed(tmp_path, "", framework=None, processes="per-gpu")
    assert (each.framework, each.processes) == (Framework.PYTORCH, Processes.PER_GPU)
    for named in (Framework.KERAS, Framework.OTHER):
        assert parsed(tmp_path, TRAINER, framework=named.value).framework is named
