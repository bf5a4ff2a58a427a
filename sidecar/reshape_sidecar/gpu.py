"""GPUs as NVML shows them: UUIDs, names, memory and utilisation.

Without a driver or NVML the result is empty and gives the reason. No function uses a GPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.wire import GpuUse

PERCENT = 100.0
UNKNOWN_TO_NVML = (2, 6)
"""NVML's error codes for a name that is no UUID, and for an unknown UUID."""
FREE_MEMORY_BYTES = 512 << 20
"""A GPU whose used memory exceeds this is in use (the driver itself uses some)."""
_lock = threading.Lock()
_nvml: Any = None
_tried = False
_trouble = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU; ``used_bytes`` without the driver's reserve, None if it is not readable."""

    uuid: str
    name: str
    used_bytes: int | None
    total_bytes: int = 0

    @property
    def busy(self) -> str:
        """Reason why the GPU does not count as empty; empty if it does."""
        if self.used_bytes is None:
            return f"GPU {self.uuid} cannot be read"
        if self.used_bytes > FREE_MEMORY_BYTES:
            return f"GPU {self.uuid} holds {self.used_bytes >> 20} MiB"
        return ""

    @property
    def gpu_type(self) -> str:
        """Name of the GPU as in profiles: lower case, dashes."""
        return self.name.lower().replace("nvidia ", "").replace(" ", "-") or "gpu"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every GPU that NVML shows, in its order; ``trouble``: the reason if there is none."""

    gpus: tuple[GpuReading, ...] = ()
    trouble: str = ""


def inventory() -> Inventory:
    """Return the GPUs of this machine."""
    uuids = visible()
    if not uuids:
        return Inventory((), _trouble or "NVML shows no GPU")
    return Inventory(tuple(_reading(_nvml, uuid) for uuid in uuids))


def _reading(nvml: Any, uuid: str) -> GpuReading:
    reading = _read(nvml, uuid)
    try:
        name = _text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(uuid)))
    except nvml.NVMLError:
        name = ""
    if reading is None:
        return GpuReading(uuid, name, None)
    return GpuReading(uuid, name, reading.memory_used_bytes, reading.memory_total_bytes)


def visible() -> tuple[str, ...]:
    """Return the UUIDs of every GPU that NVML shows, in its order; empty without NVML.

    A GPU that has died is left out; those behind it are not.
    """
    nvml = _library()
    if nvml is None:
        return ()
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return ()
    uuids = []
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):
            uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))
    return tuple(uuids)


def use(uuids: Iterable[str]) -> tuple[GpuUse, ...]:
    """Return one reading per GPU that is readable."""
    nvml = _library()
    if nvml is None:
        return ()
    readings = (_read(nvml, uuid) for uuid in uuids)
    return tuple(reading for reading in readings if reading is not None)


def unreadable(uuids: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the GPUs that NVML knows and cannot read now, each with the reason.

    They must not count as empty. UUIDs unknown to NVML (simulated devices) are not among them.
    """
    nvml = _library()
    if nvml is None:
        return ()
    faults = []
    for uuid in uuids:
        try:
            _memory(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
        except nvml.NVMLError as error:
            if getattr(error, "value", None) not in UNKNOWN_TO_NVML:
                faults.append((uuid, str(error) or type(error).__name__))
    return tuple(faults)


def _read(nvml: Any, uuid: str) -> GpuUse | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        memory = _memory(nvml, handle)
    except nvml.NVMLError:
        return None
    try:
        ratio = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / PERCENT
    except nvml.NVMLError:
        return GpuUse(uuid, int(memory.used), int(memory.total))
    return GpuUse(uuid, int(memory.used), int(memory.total), ratio)


def _memory(nvml: Any, handle: Any) -> Any:
    """Return the memory without the reserve of driver and firmware, if the driver separates it.

    On large GPUs the reserve alone is hundreds of MiB, and an empty GPU must count as empty.
    """
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _library() -> Any:
    """Return the initialised NVML binding; None without binding, library, driver or GPU."""
    global _nvml, _tried, _trouble
    with _lock:
        if _tried:
            return _nvml
        _tried = True
        try:
            import pynvml
        except ImportError:
            _trouble = "the NVML binding nvidia-ml-py is missing"
            return None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            _trouble = f"NVML: {error}"
            return None
        _nvml = pynvml
        return _nvml


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
