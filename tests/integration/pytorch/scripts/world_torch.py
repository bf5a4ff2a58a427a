"""Prints the world of a PyTorch script, item by item, before and after its imports.

A start by the zygote and a cold one must print the same.
"""

import sys

BEFORE = sorted(sys.modules)

import atexit  # noqa: E402
import ctypes  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
from typing import Any  # noqa: E402

from world_items import entries, of_process, open_files  # noqa: E402


class Sample:
    """Something to pickle."""


def double(number: int) -> tuple[int, str]:
    return number * 2, type(Sample()).__module__


def in_children() -> dict[str, Any]:
    """What a function of the script gives in children of each kind."""
    found: dict[str, Any] = {}
    for kind in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(kind).Pool(1) as pool:
            found[kind] = pool.map(double, [21])
    return found


def of_torch() -> dict[str, Any]:
    """The state of PyTorch, and of CUDA before its first call."""
    import torch

    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "type": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "parallel": torch.__config__.parallel_info(),
        "cuda": [torch.cuda.is_initialized(), torch.cuda._cached_device_count],
        "bad fork": torch.cuda._is_in_bad_fork(),
        "distributed": [torch.distributed.is_available(), torch.distributed.is_initialized()],
    }


def visible(devices: str) -> dict[str, Any]:
    """What PyTorch and the C library read if the script chooses its GPUs now."""
    import torch

    os.environ["CUDA_VISIBLE_DEVICES"] = devices
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return {
        "of PyTorch": torch.cuda._parse_visible_devices(),
        "of C": getenv(b"CUDA_VISIBLE_DEVICES").decode(),
    }


def main() -> None:
    if "logging" in sys.argv[1:]:
        logging.basicConfig()
    print("WORLD before " + json.dumps({"modules": BEFORE, **of_process()}))
    random.seed(5)
    before = set(open_files().items())
    import torch

    torch.manual_seed(5)
    drawn = [random.random(), torch.rand(1).item()]
    of_imports = {"modules": sorted(sys.modules), **of_process(), "torch": of_torch()}
    print("WORLD imports " + json.dumps(of_imports))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5))
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.rand(512, 64)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    after = {
        **of_process(),
        "modules": sorted(sys.modules),
        "drawn": drawn,
        "drawn later": [random.random(), torch.rand(1).item()],
        "losses": losses,
        "files": sorted(set(open_files().items()) - before),
        "shown": entries("environ"),
        "hidden": sorted(os.environ),
        "visible": visible("1,0"),
    }
    print("WORLD trained " + json.dumps(after))
    print("WORLD children " + json.dumps(in_children()))
    if "argument" not in sys.argv[1:]:
        raise SystemExit(4)
    atexit.register(print, "WORLD exit " + json.dumps("the handlers run"))
    sys.exit(3)


if __name__ == "__main__":
    main()
