"""How long a start takes until the script's first line, its import and its first step.

    python benchmarks/framework_start.py [--framework pytorch|keras|ranks|trainer] [--gpus 2]

A real init starts the same small script cold and by the zygote, in turns, one after the other. Each
time is counted from the order to init. ``ranks`` is PyTorch with one process for each of ``--gpus``
simulated GPUs: a moment is that of the last rank; ``trainer`` is the same with a script for Hugging
Face's Trainer. Processor time is that of the start's processes
until the first step. Memory is that of init's children after the first step: PSS, and what of it is
no page of a file. The cold start is measured without a zygote beside it, which would share the
libraries' pages. PyTorch's Python is that of ``make test-pytorch``.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reshape_sidecar.init import processes as proc  # noqa: E402
from reshape_sidecar.wire import Processes, StandbyState, StartKind  # noqa: E402
from tests.support.zygote_bed import ZygoteBed, zygote_bed  # noqa: E402

PYTORCH = str(ROOT / ".venv-pytorch" / "bin" / "python")
PYTHON = {"keras": sys.executable, "pytorch": PYTORCH, "ranks": PYTORCH, "trainer": PYTORCH}
IMPORT = {
    "keras": "import keras, numpy",
    "pytorch": "import torch",
    "ranks": "import torch",
    "trainer": """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
from transformers import TrainingArguments
""",
}
STEP = {
    "keras": """
model = keras.Sequential([keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(numpy.ones((64, 64)), numpy.ones((64, 1)), batch_size=64, verbose=0)
""",
    "pytorch": """
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(64, 64)).square().mean().backward()
optimizer.step()
""",
    "ranks": """
torch.distributed.init_process_group("gloo")
network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(64, 64)).square().mean().backward()
optimizer.step()
""",
    "trainer": """
class AfterOne(TrainerCallback):
    def on_step_end(self, *arguments, **names):
        print(f"AT step {time.monotonic()}\\n", end="", flush=True)
        time.sleep(600)
config = BertConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
)
rows = [{"input_ids": torch.tensor([n % 64] * 12), "labels": n % 2} for n in range(64)]
told = TrainingArguments("out", use_cpu=True, report_to="none", disable_tqdm=True, max_steps=9)
model = BertForSequenceClassification(config)
Trainer(model, told, train_dataset=rows, callbacks=[AfterOne()]).train()
""",
}
RANKS = ("ranks", "trainer")
SCRIPT = """
import time
print(f"AT line {{time.monotonic()}}\\n", end="", flush=True)
{imports}
print(f"AT import {{time.monotonic()}}\\n", end="", flush=True)
{step}
print(f"AT step {{time.monotonic()}}\\n", end="", flush=True)
time.sleep(600)
"""
MOMENTS = ("line", "import", "step")


def memory_mb(*pids: int) -> str:
    """Proportional set size of processes together, and its part without files."""
    lines = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids).splitlines()
    sizes = {
        name: sum(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000
        for name in ("Pss", "Pss_Anon")
    }
    return f"{sizes['Pss']:.0f} ({sizes['Pss_Anon']:.0f})"


def processor_s(*pids: int) -> float:
    """Processor time of processes together."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def one_start(bed: ZygoteBed, cold: bool, gpus: int, processes: int) -> tuple[list[float], str]:
    """Seconds to each moment, processor time, and memory; ``processes`` run the script."""
    began_s = time.monotonic()
    training = bed.start("train.py", devices=gpus, cold=cold)
    assert training.how is (StartKind.COLD if cold else StartKind.ZYGOTE), training.fallback

    def printed() -> list[float]:
        lines = bed.log()[training.log_offset_bytes :].splitlines()
        words = [line.split() for line in lines if line.startswith("AT ")]
        at = {name: [float(w[2]) for w in words if w[1] == name] for name in MOMENTS}
        done = all(len(times) == processes for times in at.values())
        return [max(times) for times in at.values()] if done else []

    moments = bed.until("its first step", printed)
    below = proc.descendants(training.pid, proc.snapshot())
    pids = [training.pid, *(one.pid for one in below)]
    used_s = processor_s(*pids)
    memory = memory_mb(*(pids if cold else [*pids, bed.zygote().pid]))
    bed.sweep(0.0)
    return [*(moment - began_s for moment in moments), used_s], memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", choices=tuple(PYTHON), default="pytorch")
    parser.add_argument("--gpus", type=int, default=1, help="of a start of ranks")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    framework, gpus = options.framework, options.gpus
    processes = gpus if framework in RANKS else 1
    rows: dict[bool, list[list[float]]] = {False: [], True: []}
    together = ""
    with bed_of(framework) as bed:
        zygote = bed.ready("train.py")
        if zygote.state is not StandbyState.READY:
            raise SystemExit(f"there is no zygote: {zygote.reason}")
        alone = memory_mb(zygote.pid)
        for _ in range(options.runs):
            for cold in rows:
                figures, memory = one_start(bed, cold, gpus, processes)
                rows[cold].append(figures)
                together = together if cold else memory
    with bed_of(framework) as bed:
        _, of_cold = one_start(bed, True, gpus, processes)
    print(
        f"{framework}, {gpus} GPUs, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load average {os.getloadavg()[0]:.1f}, {options.runs} starts each"
    )
    print(f"memory, MB: zygote {alone}, with its forks {together}; cold start {of_cold}")
    print(f"{'order to':12}{'zygote, s':>28}{'cold, s':>28}")
    for column, name in enumerate((*MOMENTS, "processor")):
        cells = []
        for of_kind in rows.values():
            values = [row[column] for row in of_kind]
            middle, low, high = statistics.median(values), min(values), max(values)
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        print(f"{name:12}{cells[0]:>28}{cells[1]:>28}")


@contextmanager
def bed_of(framework: str) -> Iterator[ZygoteBed]:
    """A container with the script, and without a zygote yet."""
    with (
        tempfile.TemporaryDirectory(prefix="framework-start-") as folder,
        zygote_bed(
            Path(folder),
            processes=Processes.PER_GPU if framework in RANKS else Processes.ONE,
            framework="keras" if framework == "keras" else "pytorch",
            python=PYTHON[framework],
        ) as bed,
    ):
        bed.script("train.py", SCRIPT.format(imports=IMPORT[framework], step=STEP[framework]))
        yield bed


if __name__ == "__main__":
    main()
