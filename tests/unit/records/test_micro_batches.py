"""`batch: micro` is taken where micro-batches can stay together, and refused by name elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.model import Batch, JobSpec
from reshape_controller.records import RecordInvalid, parse_record
from reshape_sidecar.wire import Processes

LOOP = "from reshape_sidecar import session\njob = session.start()\n"
LOOP += "for batch in job.batches(loader, model=model, optimizer=optimizer):\n    pass\n"
FIT = "import lightning as L\nL.Trainer().fit(model)\n"
TRAINER = "from transformers import Trainer\nTrainer(model=model).train()\n"
GROUP = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"


def parsed(folder: Path, text: str, **record: Any) -> JobSpec:
    (folder / "train.py").write_text(text)
    whole = {"name": "a", "command": "python train.py", "optional_gpus": [1, 2, 4]}
    fields = {**whole, "framework": "pytorch", "batch": "micro", **record}
    return parse_record(fields, folder=folder)


@pytest.mark.parametrize("text", [LOOP, FIT, TRAINER])
def test_a_step_has_a_micro_batch_for_each_gpu_of_the_largest_size(
    text: str, tmp_path: Path
) -> None:
    spec = parsed(tmp_path, text)
    assert (spec.batch, spec.micro_batches, spec.processes) == (Batch.MICRO, 4, Processes.PER_GPU)
    assert parsed(tmp_path, text, batch=None).micro_batches is None


def test_a_script_that_cannot_be_read_here_says_it_in_its_process(tmp_path: Path) -> None:
    command = "python elsewhere.py"
    (tmp_path / "elsewhere.py").write_text("import (")
    spec = parsed(tmp_path, "", command=command, processes="per-gpu")
    assert spec.micro_batches == 4


@pytest.mark.parametrize(
    ("text", "record", "what", "remedy"),
    [
        (
            LOOP,
            {"framework": "keras"},
            "micro is for framework pytorch, and this record's is keras",
            "write framework: pytorch, or leave batch out",
        ),
        (
            LOOP,
            {"optional_gpus": [1, 2, 3, 4, 6]},
            "micro makes 6 micro-batches a step, one for each GPU of the largest size, and 4 GPUs"
            " cannot share them equally",
            "leave 4 out of optional_gpus, or leave batch out",
        ),
        (
            LOOP,
            {"processes": "one"},
            "micro is for a process for each GPU, and the job has one",
            "write processes: per-gpu, or leave batch out",
        ),
        (
            "print()\n",
            {},
            "micro is for a process for each GPU, and the job has one: its script joins no process"
            " group",
            "write processes: per-gpu, or leave batch out",
        ),
        *(
            (
                GROUP,
                record,
                "micro is for job.batches and trainers, and the script joins a process group from"
                " the environment (line 2)",
                "loop over job.batches and job.micro_batches, or leave batch out",
            )
            for record in ({}, {"processes": "per-gpu"})
        ),
    ],
)
def test_what_cannot_keep_micro_batches_is_refused(
    text: str, record: dict[str, Any], what: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordInvalid) as caught:
        parsed(tmp_path, text, **record)
    assert [(each.path, each.message, each.hint) for each in caught.value.errors] == [
        ("batch", what, remedy)
    ]
