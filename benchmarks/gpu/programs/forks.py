"""Does a GPU that is named after a fork, and before the first CUDA call, count? Prints JSON.

    python forks.py FIRST THEN [DRIVER]

The process imports PyTorch with CUDA_VISIBLE_DEVICES=FIRST, forks, and the child sets THEN and asks
the driver. Without Reshape. DRIVER: the driver's library, libcuda.so.1 if it is left out.
"""

from __future__ import annotations

import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]

import ctypes
import itertools
import json
import time
from pathlib import Path
from typing import Any

from device import STAND_IN, Gpu, import_torch

NO_DEVICE = 100
"""The driver's code for: no GPU is visible."""


def driver_sees(library: str) -> dict[str, Any]:
    """Return which GPUs the driver shows this process; ``error`` if it does not say."""
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        return {"error": str(error)}
    code = driver.cuInit(0)
    if code == NO_DEVICE:
        return {"uuids": []}
    if code != 0:
        return {"error": f"cuInit {code}"}
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    uuids = []
    for number in range(count.value):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetUuid(ctypes.byref(raw), device)
        text = bytes(raw).hex()
        cut = (0, 8, 12, 16, 20, 32)
        parts = [text[a:b] for a, b in itertools.pairwise(cut)]
        uuids.append(f"GPU-{'-'.join(parts)}")
    return {"uuids": uuids}


def child(then: str, library: str, torch: Any, forked_s: float) -> dict[str, Any]:
    """Return what the fork finds."""
    os.environ["CUDA_VISIBLE_DEVICES"] = then
    found = driver_sees(library)
    if found.get("uuids") == []:
        return found
    try:
        gpu = Gpu(torch)
        found |= {"torch_uuid": gpu.uuid, "torch_count": gpu.count}
        found["fork_to_context_s"] = time.monotonic() - forked_s
    except Exception as error:
        found["torch_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


def opened() -> list[str]:
    """Return the files of the NVIDIA driver that this process has open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:
            continue
    return sorted({link for link in links if link.startswith("/dev/nvidia")})


def main() -> None:
    then = sys.argv[2]
    library = sys.argv[3] if len(sys.argv) > 3 else "libcuda.so.1"
    began_s = time.monotonic()
    torch = import_torch()
    facts: dict[str, Any] = {
        "import_s": time.monotonic() - began_s,
        "threads_after_import": len(os.listdir("/proc/self/task")),
        "driver_files_after_import": opened(),
        "cuda_begun_by_import": bool(
            torch is not None and STAND_IN not in os.environ and torch.cuda.is_initialized()
        ),
    }
    reads, writes = os.pipe()
    forked_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            found = child(then, library, torch, forked_s)
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    facts["child"] = json.loads(text) if text else {"error": f"it ended with {status}"}
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
