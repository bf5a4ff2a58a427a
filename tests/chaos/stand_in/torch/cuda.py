"""No CUDA."""

_cached_device_count = None


def is_initialized() -> bool:
    return False


def _is_in_bad_fork() -> bool:
    return False
