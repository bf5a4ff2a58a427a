"""PyTorch scripts that start by the zygote: as after a cold start, only faster.

They run without the hook, so the cold start is that of Python itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.wire import Mode, Observed, Phase, StandbyState, StartKind
from tests.support import coordinator_double, sidecar_bed
from tests.support.pytorch_bed import PYTHON
from tests.support.worlds import assert_same_with_torch, worlds
from tests.support.zygote_bed import PATIENCE_S, ZygoteBed, zygote_bed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

WORLD = Path(__file__).parent / "scripts" / "world_torch.py"
ITEMS = Path(__file__).parents[1] / "tensorflow" / "scripts" / "world_items.py"
FORKS = int(os.environ.get("RESHAPE_FORKS", "10"))
TRAIN = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.rand(512, 256)).square().mean()
    loss.backward()
    optimizer.step()
print("LOSS", loss.item(), torch.get_num_threads(), flush=True)
os._exit(0)
"""
DRAW = """
import random, numpy, torch
print("DRAWN", numpy.random.rand(), random.random(), torch.rand(1).item(), torch.initial_seed())
"""
SETS = """
import os
print("ABOVE", flush=True)
os.environ["PYTORCH_ALLOC_CONF"] = ":".join(["max_split_size_mb", "64"])
import torch
print("BELOW", torch.__version__)
"""
COUNTS = "import torch; torch._C._cuda_getDeviceCount()"
SESSION = """
import time
import torch
from reshape_sidecar import session
job = session.start(total_steps=100_000)
weights = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for step in range(job.step, job.total_steps):
    (weights - 1).square().sum().backward()
    optimizer.step()
    job.step_done(lambda folder: torch.save(weights, folder / "state.pt"))
    time.sleep(0.01)
"""


def pytorch_bed(path: Path, site: str = "") -> contextlib.AbstractContextManager[ZygoteBed]:
    return zygote_bed(path, framework="pytorch", python=str(PYTHON), PYTHONPATH=site)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZygoteBed]:
    with pytorch_bed(tmp_path_factory.mktemp("zygote")) as made:
        made.script("train.py", TRAIN)
        made.script("draw.py", DRAW)
        for script in (WORLD, ITEMS):
            shutil.copy(script, made.code)
        zygote = made.ready(WORLD.name, "argument")
        assert zygote.state is StandbyState.READY, zygote.reason
        yield made


@pytest.mark.gate
def test_a_script_sees_the_world_of_a_cold_start(bed: ZygoteBed) -> None:
    by_zygote, by_interpreter = bed.run_both(3, WORLD.name, "argument")
    assert "_reshape_hook" not in by_zygote
    one, other = worlds(by_zygote), worlds(by_interpreter)
    assert one["imports"]["torch"]["cuda"] == [False, None]
    assert one["trained"]["visible"] == {"of PyTorch": [1, 0], "of C": "1,0"}
    assert_same_with_torch(one, other)


def test_two_forks_draw_other_random_numbers(bed: ZygoteBed) -> None:
    runs = [bed.run("draw.py") for _ in range(3)]
    assert [(one.how, one.exit_code) for one, _ in runs] == [(StartKind.ZYGOTE, 0)] * 3
    drawn = [output.split() for _, output in runs]
    assert all(word == "DRAWN" for word, *_ in drawn), drawn
    for generator in (1, 2, 3, 4):
        assert len({words[generator] for words in drawn}) == 3


def test_forks_train_without_a_hang_and_as_a_cold_start_does(bed: ZygoteBed) -> None:
    lines = set()
    for _ in range(FORKS):
        training, output = bed.run("train.py")
        assert (training.how, training.exit_code) == (StartKind.ZYGOTE, 0), output
        lines.add(output)
    executed, output = bed.run("train.py", cold=True)
    assert executed.how is StartKind.COLD
    assert lines == {output}
    assert len(os.listdir(f"/proc/{bed.zygote().pid}/task")) == 1


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys; sys.exit(5)", 5),
        ("def above():\n    raise ValueError('HERE')\nabove()", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import threading; threading.Timer(0.2, print, ['HERE']).start()", 0),
        ("import atexit, weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'HERE')", 0),
        ("import argparse, sys\nfrom dataclasses import dataclass\nprint(sorted(sys.modules))", 0),
    ],
)
def test_a_script_ends_as_after_a_cold_start(bed: ZygoteBed, script: str, code: int) -> None:
    bed.script("ends.py", script)
    by_zygote, by_interpreter = bed.run_both(code, "ends.py")
    assert by_zygote == by_interpreter


def test_a_variable_that_the_import_reads_makes_one_start_cold(bed: ZygoteBed) -> None:
    """The last of this bed's tests, for the zygote ends by it."""
    bed.script("sets.py", SETS)
    training, output = bed.run("sets.py")
    assert training.how is StartKind.COLD
    assert training.fallback == "the script sets PYTORCH_ALLOC_CONF above its imports"
    assert (output.count("ABOVE"), output.count("BELOW")) == (2, 1)


def test_an_import_that_counts_the_gpus_makes_all_starts_cold(tmp_path: Path) -> None:
    """CUDA works in no fork of a process that has called it, and has read which GPUs it may use."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(COUNTS)
    with pytorch_bed(tmp_path, str(site)) as bed:
        bed.script("draw.py", "print('HERE')")
        zygote = bed.ready("draw.py")
        assert (zygote.state, zygote.reason) == (
            StandbyState.OFF,
            "the import of the framework has called CUDA",
        )
        training, output = bed.run("draw.py")
        assert (training.how, training.fallback) == (StartKind.COLD, zygote.reason)
        assert "HERE" in output


@pytest.mark.gate
def test_an_attempt_starts_and_reshapes_by_its_zygote_and_reports_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised(SESSION, framework="pytorch", command=(str(PYTHON), "train.py"))
        for size in (2, 1):
            devices = sidecar_bed.DEVICES[:size]
            bed.coordinator.want(Mode.RUN, *devices)
            report = bed.coordinator.until(
                f"training on {size} devices", functools.partial(trains_on, devices)
            )
            assert (report.times.how, report.times.fallback) == (StartKind.ZYGOTE, None)
            assert report.standby is not None
            assert report.standby.state is StandbyState.READY
            assert report.process_restarts == 2 - size


def trains_on(devices: tuple[str, ...], report: Observed) -> bool:
    return report.phase is Phase.RUNNING and report.devices == devices
