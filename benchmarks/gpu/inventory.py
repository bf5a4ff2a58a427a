"""Step 1: what the machine has, by NVML and PyTorch, and what of this run it can do.

Does: reads; the only thing that it starts is an import of PyTorch with one small tensor. Never:
changes a mode. Its figures ``machine`` and ``refusals`` say to the steps after it what they need.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.memory import used
from gpu.step import MIB, Step, StepFailed

from reshape_sidecar import gpu as nvml_view

COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
TORCH_S = 90.0
NOT_SAID = "not said by NVML"
ALL, SECOND = "all", "second context"
"""Refusals: of every step that uses the GPU; of those that need two processes on it."""
PROBE = """
import json, sys, time
began = time.monotonic()
import torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda, "import_s": time.monotonic() - began}
try:
    began = time.monotonic()
    torch.empty(1, device="cuda")
    facts["context_s"] = time.monotonic() - began
    facts["name"] = torch.cuda.get_device_name(0)
    facts["capability"] = ".".join(map(str, torch.cuda.get_device_capability(0)))
    facts["cudnn"] = torch.backends.cudnn.version()
except Exception as error:
    facts["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
print(json.dumps(facts))
"""  # noqa: E501


def run(step: Step) -> None:
    """Write the inventory. Raises StepFailed if there is no GPU."""
    found = nvml_view.inventory()
    if not found.gpus:
        raise StepFailed(f"no GPU: {found.trouble}")
    import pynvml

    step.put(gpus=[_gpu(pynvml, reading) for reading in found.gpus])
    step.uuid = found.gpus[0].uuid
    step.put(uuid=step.uuid, driver=_said(pynvml.nvmlSystemGetDriverVersion))
    step.put(cuda_of_driver=_cuda(_said(pynvml.nvmlSystemGetCudaDriverVersion)))
    step.put(nvml=_said(pynvml.nvmlSystemGetNVMLVersion), host=_host())
    torch = _torch(step)
    step.put(torch=torch)
    step.put(refusals=_refusals(step, torch), machine=_machine(step, torch))
    step.check("the GPU has a UUID that NVML finds", used(step.uuid) >= 0, step.uuid)


def _gpu(pynvml: Any, reading: nvml_view.GpuReading) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByUUID(reading.uuid)
    mode = _said(lambda: pynvml.nvmlDeviceGetComputeMode(handle))
    mig = _said(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    plain = _said(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return {
        "uuid": reading.uuid,
        "name": reading.name,
        "type_in_profiles": reading.gpu_type,
        "memory_mib": reading.total_bytes // MIB,
        "used_mib": None if reading.used_bytes is None else reading.used_bytes // MIB,
        "used_with_reserve_mib": plain // MIB if isinstance(plain, int) else plain,
        "compute_mode": COMPUTE_MODES.get(mode, mode),
        "mig": {0: "off", 1: "on"}.get(mig, mig),
        "mig_instances": _instances(pynvml, handle) if mig == 1 else [],
        "persistence": {0: "off", 1: "on"}.get(
            persistence := _said(lambda: pynvml.nvmlDeviceGetPersistenceMode(handle)), persistence
        ),
    }


def _instances(pynvml: Any, handle: Any) -> list[dict[str, Any]]:
    """Return the MIG instances of a GPU: UUID, name and memory."""
    count = _said(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    found = []
    for index in range(count if isinstance(count, int) else 0):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(part)
            uuid, name = pynvml.nvmlDeviceGetUUID(part), pynvml.nvmlDeviceGetName(part)
        except pynvml.NVMLError:
            continue
        found.append({"uuid": _text(uuid), "name": _text(name), "memory_mib": memory.total // MIB})
    return found


def _said(ask: Callable[[], Any]) -> Any:
    """Return what NVML says, or that it does not."""
    try:
        return _text(ask())
    except Exception as error:
        return f"{NOT_SAID}: {error}"


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _cuda(version: Any) -> Any:
    return f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) else version


def _host() -> dict[str, Any]:
    memory = next(
        (line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0"
    )
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_path": found_python(),
        "cores": os.cpu_count(),
        "memory_gib": int(memory) >> 20,
    }


def found_python() -> str:
    """Return the Python that the run was started with; its own sees the same packages."""
    return os.environ.get("GPU_RUN_FOUND", sys.executable)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _torch(step: Step) -> dict[str, Any]:
    """Import PyTorch in a process of its own and make a tensor on the GPU."""
    if not step.has_torch:
        return {"error": "the run goes without PyTorch"}
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": step.uuid}
    with (step.logs / "torch.log").open("ab") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-c", PROBE],
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                timeout=TORCH_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"import and first tensor took more than {TORCH_S:.0f} s"}
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError:
        return {"error": f"{found_python()} has no working PyTorch; torch.log says why"}


def _refusals(step: Step, torch: dict[str, Any]) -> dict[str, str]:
    """Return what this machine cannot do, and why (docs/gpus.md)."""
    gpu = step.facts["gpus"][0]
    refusals = {}
    if gpu["compute_mode"] == "exclusive process":
        refusals[SECOND] = "the GPU's compute mode allows one process (exclusive process)"
    if gpu["compute_mode"] == "prohibited":
        refusals[ALL] = "the GPU's compute mode allows no process (prohibited)"
    if gpu["mig"] == "on":
        names = ", ".join(part["uuid"] for part in gpu["mig_instances"]) or "none"
        refusals[ALL] = f"MIG is on, and Reshape gives whole GPUs only (instances: {names})"
    if gpu["used_mib"] is not None and gpu["used_mib"] > nvml_view.FREE_MEMORY_BYTES // MIB:
        refusals[ALL] = f"another program holds {gpu['used_mib']} MiB of GPU {gpu['uuid']}"
    if step.is_real and "error" in torch:
        refusals[ALL] = f"PyTorch of {found_python()} cannot use the GPU: {torch['error']}"
    return refusals


def _machine(step: Step, torch: dict[str, Any]) -> dict[str, Any]:
    """Return the lines that head the report."""
    gpu, host = step.facts["gpus"][0], step.facts["host"]
    return {
        "GPU": f"{gpu['name']}, {gpu['memory_mib']} MiB, {gpu['uuid']}",
        "modes": f"compute {gpu['compute_mode']}, MIG {gpu['mig']}",
        "driver": f"{step.facts['driver']}, CUDA {step.facts['cuda_of_driver']}",
        "PyTorch": f"{torch['version']}, CUDA {torch['cuda']}" if "cuda" in torch else "none",
        "Python": f"{host['python']}, {host['python_path']}",
        "host": f"kernel {host['kernel']}, {host['cores']} cores, {host['memory_gib']} GiB",
    }
