"""GPUs as NVML shows them; an honest nothing where there is no NVML.

Does: lists UUIDs, names, memory and utilisation. Never: uses a GPU, invents a reading, or fails
because there is no driver: then the answer is empty, and says why. State: whether NVML was tried.
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
"""Codes of NVML for a name that is no UUID, and for one that it does not have."""
FREE_MEMORY_BYTES = 512 << 20
"""A GPU that holds more is in use (the driver itself uses some)."""
_lock = threading.Lock()
_nvml: Any = None
_tried = False
_trouble = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU. ``used_bytes`` without what driver and firmware reserve; None: it cannot be read."""

    uuid: str
    name: str
    used_bytes: int | None
    total_bytes: int = 0

    @property
    def busy(self) -> str:
        """Why it cannot be called empty; nothing if it is."""
        if self.used_bytes is None:
            return f"GPU {self.uuid} cannot be read"
        if self.used_bytes > FREE_MEMORY_BYTES:
            return f"GPU {self.uuid} holds {self.used_bytes >> 20} MiB"
        return ""

    @property
    def gpu_type(self) -> str:
        """Its name as profiles have it: lower case, dashes."""
        return self.name.lower().replace("nvidia ", "").replace(" ", "-") or "gpu"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every GPU that NVML shows, in its order; ``trouble``: why there may be none."""

    gpus: tuple[GpuReading, ...] = ()
    trouble: str = ""


def inventory() -> Inventory:
    """What is here."""
    uuids = visible()
    if not uuids:
        return Inventory((), _trouble or "NVML shows no GPU")
    return Inventory(tuple(_seen(_nvml, uuid) for uuid in uuids))


def _seen(nvml: Any, uuid: str) -> GpuReading:
    reading = _read(nvml, uuid)
    try:
        name = _text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(uuid)))
    except nvml.NVMLError:
        name = ""
    if reading is None:
        return GpuReading(uuid, name, None)
    return GpuReading(uuid, name, reading.memory_used_bytes, reading.memory_total_bytes)


def visible() -> tuple[str, ...]:
    """UUIDs of every GPU that NVML shows, in its order; empty without NVML. One that has died is
    left out, those behind it are not."""
    nvml = _library()
    if nvml is None:
        return ()
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return ()
    found = []
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):
            found.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))
    return tuple(found)


def use(uuids: Iterable[str]) -> tuple[GpuUse, ...]:
    """One reading per GPU that can be read; a GPU that cannot is left out."""
    nvml = _library()
    if nvml is None:
        return ()
    found = (_read(nvml, uuid) for uuid in uuids)
    return tuple(reading for reading in found if reading is not None)


def unreadable(uuids: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """GPUs that NVML knows and cannot read now, each with the reason: nobody may call them empty.
    What NVML does not know (simulated devices) is not among them."""
    nvml = _library()
    if nvml is None:
        return ()
    found = []
    for uuid in uuids:
        try:
            _memory(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
        except nvml.NVMLError as error:
            if getattr(error, "value", None) not in UNKNOWN_TO_NVML:
                found.append((uuid, str(error) or type(error).__name__))
    return tuple(found)


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
    """Memory without what driver and firmware reserve, where the driver tells it apart: on large
    GPUs that alone is hundreds of MiB, and an empty GPU must look empty."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _library() -> Any:
    """The initialised NVML binding; None where there is no binding, library, driver or GPU."""
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
