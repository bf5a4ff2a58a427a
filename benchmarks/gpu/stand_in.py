"""What replaces the GPU on a machine without one: NVML of the Kubernetes tests, and a driver.

Does: builds both libraries with gcc, and says by which variables the run finds them. Never: a GPU;
the report says of each step that it ran on a stand-in. State: a folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
NVML = HERE.parents[1] / "tests" / "kubernetes" / "nvml.c"
UUID = "GPU-5afe0000-0000-4000-8000-00000000c0de"
TOTAL_BYTES = 80 << 30
BASE_BYTES = 3 << 20
"""What a GPU holds that no process uses."""


def build(folder: Path, *, with_torch: bool) -> dict[str, str]:
    """Build the stand-in; return the variables of the run. Raises SystemExit without gcc."""
    if shutil.which("gcc") is None:
        raise SystemExit("the stand-in needs gcc; apt-get install gcc libc6-dev")
    holders = folder / "holders"
    holders.mkdir(parents=True)
    gpus = folder / "list"
    gpus.write_text(f"{UUID} {BASE_BYTES} {TOTAL_BYTES} NVIDIA stand-in\n")
    places = {"FILE_OF_GPUS": gpus, "HOLDERS": holders}
    _compile(NVML, folder / "libnvidia-ml.so.1", places)
    _compile(HERE / "cuda.c", folder / "driver.so", {})
    libraries = os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    return {
        "GPU_RUN_STAND_IN": str(holders),
        "GPU_RUN_DRIVER": str(folder / "driver.so"),
        "GPU_RUN_TORCH": "on" if with_torch else "off",
        "LD_LIBRARY_PATH": libraries,
    }


def has_torch() -> bool:
    """Whether this Python has PyTorch."""
    return importlib.util.find_spec("torch") is not None


def _compile(source: Path, library: Path, places: dict[str, Path]) -> None:
    words = [f'-D{name}="{path}"' for name, path in places.items()]
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *words, "-o", str(library)]
    subprocess.run([*command, str(source)], check=True)
