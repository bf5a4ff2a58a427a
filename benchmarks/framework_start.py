"""How long a start takes until the script's first line, its import and its first step.

    python benchmarks/framework_start.py [--framework pytorch|keras] [--runs 10]

A real init starts the same small script cold and by the zygote, in turns, one after the other. Each
time is counted from the order to init. Memory is that of init's children after the first step: PSS,
and what of it is no page of a file. The cold process is measured without a zygote beside it, which
would share the libraries' pages. PyTorch's Python is that of ``make test-pytorch``.
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

from reshape_sidecar.wire import StandbyState, StartKind  # noqa: E402
from tests.support.zygote_bed import ZygoteBed, zygote_bed  # noqa: E402

PYTHON = {"keras": sys.executable, "pytorch": str(ROOT / ".venv-pytorch" / "bin" / "python")}
IMPORT = {"keras": "import keras, numpy", "pytorch": "import torch"}
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
}
SCRIPT = """
import time
print("AT line", time.monotonic(), flush=True)
{imports}
print("AT import", time.monotonic(), flush=True)
{step}
print("AT step", time.monotonic(), flush=True)
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


def one_start(bed: ZygoteBed, cold: bool) -> tuple[list[float], str]:
    """Seconds to each moment, and memory at the last one."""
    began_s = time.monotonic()
    training = bed.start("train.py", cold=cold)
    assert training.how is (StartKind.COLD if cold else StartKind.ZYGOTE), training.fallback

    def printed() -> list[float]:
        lines = bed.log()[training.log_offset_bytes :].splitlines()
        at = [float(line.split()[2]) for line in lines if line.startswith("AT ")]
        return at if len(at) == len(MOMENTS) else []

    moments = bed.until("its first step", printed)
    memory = memory_mb(*([training.pid] if cold else [training.pid, bed.zygote().pid]))
    bed.sweep(0.0)
    return [moment - began_s for moment in moments], memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", choices=tuple(PYTHON), default="pytorch")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    framework = options.framework
    rows: dict[bool, list[list[float]]] = {False: [], True: []}
    together = ""
    with bed_of(framework) as bed:
        zygote = bed.ready("train.py")
        if zygote.state is not StandbyState.READY:
            raise SystemExit(f"there is no zygote: {zygote.reason}")
        alone = memory_mb(zygote.pid)
        for _ in range(options.runs):
            for cold in rows:
                figures, memory = one_start(bed, cold)
                rows[cold].append(figures)
                together = together if cold else memory
    with bed_of(framework) as bed:
        _, of_cold = one_start(bed, cold=True)
    print(
        f"{framework}, Python {platform.python_version()}, {os.cpu_count()} cores, load average "
        f"{os.getloadavg()[0]:.1f}, {options.runs} starts each"
    )
    print(f"memory, MB: zygote {alone}, with its fork {together}; cold process {of_cold}")
    print(f"{'order to':12}{'zygote, s':>28}{'cold, s':>28}")
    for column, name in enumerate(MOMENTS):
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
        zygote_bed(Path(folder), framework=framework, python=PYTHON[framework]) as bed,
    ):
        bed.script("train.py", SCRIPT.format(imports=IMPORT[framework], step=STEP[framework]))
        yield bed


if __name__ == "__main__":
    main()
