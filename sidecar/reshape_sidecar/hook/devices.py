"""Simulated devices: one TensorFlow logical CPU device per GPU of the ledger.

Does: splits the CPU right after TensorFlow was imported, before any operation runs. Never: touches
real GPUs; those are set by CUDA_VISIBLE_DEVICES alone. State: TensorFlow's own.
"""

from __future__ import annotations

from typing import Any


def split_cpu(tensorflow: Any, count: int) -> None:
    """Make ``count`` logical CPU devices; ``MirroredStrategy()`` takes them all."""
    config = tensorflow.config
    config.set_visible_devices([], "GPU")
    cpu = config.list_physical_devices("CPU")[0]
    config.set_logical_device_configuration(
        cpu, [config.LogicalDeviceConfiguration() for _ in range(count)]
    )
