"""A GPU as the programs of this run use it: through PyTorch, or a stand-in where there is none.

Does: opens a context and takes memory; writes marks, which say when something happened. With a
stand-in, memory is a file with the process id as its name, which the stand-in of NVML counts while
the process lives. State: the marks' file, the stand-in's files.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MARKS, STAND_IN, TORCH = "GPU_RUN_MARKS", "GPU_RUN_STAND_IN", "GPU_RUN_TORCH"
"""Variables: the file of marks; the folder of the stand-in's memory; ``off``: without PyTorch."""
CONTEXT_BYTES = 300 << 20
"""Memory of a context of the stand-in."""


def mark(name: str, **more: object) -> None:
    """Append what happened now, on the machine's monotonic clock, to the file of marks."""
    path = os.environ.get(MARKS)
    if path is None:
        return
    line = {"name": name, "at_s": time.monotonic(), "pid": os.getpid(), **more}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def import_torch() -> Any:
    """Return the module torch; None where the run goes without it."""
    return None if os.environ.get(TORCH) == "off" else importlib.import_module("torch")


class Gpu:
    """The first GPU that this process sees, with an open context."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.is_real = STAND_IN not in os.environ
        self._ballast: list[Any] = []
        self._taken_bytes = CONTEXT_BYTES
        if self.is_real:
            self.device = torch.device("cuda", 0)
            self._ballast.append(torch.empty(1, device=self.device))
            torch.cuda.synchronize()
        else:
            self.device = torch.device("cpu") if torch is not None else None
            self.take(0)

    @property
    def uuid(self) -> str:
        """UUID of the GPU on which the context is, as the driver says; else as it was asked."""
        if self.is_real:
            found = getattr(self.torch.cuda.get_device_properties(self.device), "uuid", None)
            if found is not None:
                return f"GPU-{str(found).removeprefix('GPU-')}"
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")

    @property
    def count(self) -> int:
        """Number of GPUs that this process sees."""
        if self.is_real:
            return int(self.torch.cuda.device_count())
        return len(list(filter(None, self.uuid.split(","))))

    def take(self, count: int) -> None:
        """Hold ``count`` further bytes of its memory until this process ends."""
        if self.is_real:
            kind = self.torch.uint8
            self._ballast.append(self.torch.empty(count, dtype=kind, device=self.device))
            self.synchronize()
            return
        self._taken_bytes += count
        file = Path(os.environ[STAND_IN], str(os.getpid()))
        partial = file.with_name(f".{file.name}")
        partial.write_text(f"{self.uuid.split(',')[0]} {self._taken_bytes}\n")
        partial.replace(file)

    def synchronize(self) -> None:
        """Wait until the GPU has done all that it was given."""
        if self.is_real:
            self.torch.cuda.synchronize()


def wait_for_word(word: str) -> None:
    """Say that ``word`` is reached, and wait for a line of standard input; its end ends this."""
    print(word, flush=True)
    if not sys.stdin.readline():
        os._exit(0)
