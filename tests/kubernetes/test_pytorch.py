"""An unmodified script for Trainer is reshaped in its pod, with an environment from a claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reshape_gpu.values import JobView
from reshape_sidecar.wire import StartKind
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.image import PYTHON_VERSION
from tests.kubernetes.pod_daemon import JOB_TYPE, PodDaemon
from tests.support.daemon_bed import ROOT

pytestmark = [pytest.mark.kubernetes_pytorch, pytest.mark.timeout(900)]
PACKAGES = ROOT / ".venv-pytorch" / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
ENVIRONMENT, LIBRARIES = "/env", "/libraries"
"""Where pods have the environment, and the packages that it links to."""
PAUSE_OF_KERAS_MAX = 3.0
SECONDS_PER_STEP = 0.2
STEPS, KERAS_STEPS = 100_000, 3_000
TRAINER = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
)
rows = [{"input_ids": torch.tensor([n % 64] * 12), "labels": n % 2} for n in range(4096)]
arguments = TrainingArguments(
    output_dir="out", use_cpu=True, report_to="none", num_train_epochs=1000, save_strategy="no"
)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows).train()
"""
NEWCOMER = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


def environment(daemon: PodDaemon, folder: Path) -> None:
    """Give pods an environment with PyTorch by two claims; its Python is that of the image."""
    assert PACKAGES.is_dir(), "there is no PyTorch: make kubernetes-pytorch installs it"
    made = folder / "env"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(f"/usr/bin/python{PYTHON_VERSION}")
    (made / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {PYTHON_VERSION}\n")
    site = made / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    site.parent.mkdir(parents=True)
    site.symlink_to(LIBRARIES)
    settings = json.loads(daemon.cluster_file.read_text())
    for claim, path, place in (("env", made, ENVIRONMENT), ("libraries", PACKAGES, LIBRARIES)):
        daemon.namespace.claim(claim, path, read_only=True)
        settings["mounts"].append({"claim": claim, "path": place})
    daemon.cluster_file.write_text(json.dumps(settings))
    pace = {"1": SECONDS_PER_STEP, "2": SECONDS_PER_STEP}
    daemon.truth.write_text(json.dumps({"seconds_per_step": {JOB_TYPE: pace}}))


def pause_s(job: JobView) -> float:
    """From the end of the last step at the size before to the end of the first one."""
    times = job.times
    parts = (times.save_s, times.stop_s, times.sidecar_s, times.import_s, times.build_s)
    rest = (times.restore_s, times.position_s, times.first_step_s)
    return sum(part or 0.0 for part in (*parts, *rest))


def there_and_back(daemon: PodDaemon, job: str) -> list[JobView]:
    """Reshape a job 2-1-2 for a newcomer with three GPUs; return it after each reshape."""
    before = daemon.trains(job, 2)
    container = daemon.container(job)
    go = daemon.namespace.folder / "code" / "newcomer" / "go"
    go.unlink(missing_ok=True)
    newcomer = daemon.submit_program("newcomer", NEWCOMER, [3], 100)
    seen = [daemon.trains(job, 1)]
    go.touch()
    daemon.wait(newcomer, "the newcomer completes", state="completed", stage="none")
    seen.append(daemon.trains(job, 2))
    assert daemon.container(job) == container, "the same pod, with no restart"
    after = seen[-1]
    assert (after.attempt, after.failures, after.container_restarts) == (1, 0, 0)
    assert after.steps_lost == 0
    assert after.step > before.step
    assert daemon.reshape("cancel", job).returncode == 0
    daemon.wait(job, "is cancelled", state="cancelled", stage="none")
    return seen


def test_an_unmodified_trainer_is_reshaped_2_1_2_about_as_fast_as_keras(
    daemon: PodDaemon, one_node: None, own_cluster: Grounds, tmp_path: Path
) -> None:
    environment(daemon, tmp_path)
    daemon.up("--preset", "paper")
    keras = there_and_back(daemon, daemon.submit_keras("mnist", [1, 2], KERAS_STEPS))
    trainer = daemon.submit_record(
        "trainer",
        TRAINER,
        command=[f"{ENVIRONMENT}/bin/python", "trainer.py"],
        framework="pytorch",
        processes="per-gpu",
        optional_gpus=[1, 2],
        steps=STEPS,
        job_type=JOB_TYPE,
    )
    reshaped = there_and_back(daemon, trainer)
    for job in reshaped:
        assert (job.times.how, job.times.fallback) == (StartKind.ZYGOTE, None)
    pauses = [[pause_s(job) for job in jobs] for jobs in (keras, reshaped)]
    print("pauses of Keras and of Trainer, 2 to 1 and 1 to 2 GPUs, s:", pauses)
    assert sum(pauses[1]) <= PAUSE_OF_KERAS_MAX * sum(pauses[0]), pauses
