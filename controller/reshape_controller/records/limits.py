"""The bounds of a job record. A number beyond them is taken for a mistake."""

from __future__ import annotations

NAME_LENGTH_MAX = 63
"""Longest name, as in Kubernetes and DNS."""
GPUS_MAX = 1024
"""Largest optional number of GPUs."""
SIZES_MAX = 64
"""Largest number of sizes (optional numbers of GPUs) of one job."""
WORKERS_MAX = 1024
ARGUMENTS_MAX = 1000
TEXT_LENGTH_MAX = 4096
ENV_MAX = 200
ENV_VALUE_LENGTH_MAX = 32 * 1024
RETRIES_MAX = 100
PRIORITY_MAX = 1_000_000
"""Largest distance of a priority from 0."""
EPOCHS_MAX = 1_000_000
STEPS_MAX = 1_000_000_000_000
GLOBAL_BATCH_MAX = 1_000_000_000
MAX_WAIT_MAX_S = 365 * 24 * 3600.0
START_MAX_S = 24 * 3600.0
"""Largest bound of a start: the longest silence that a SideCar reports."""
PROGRESS_MIN_S = 30.0
"""Shortest bound of the time without a step: that of a few reports."""
SEED_MAX = 2**32 - 1
"""Largest seed that NumPy takes."""
CPUS_MAX = 4096.0
MEMORY_MIN_BYTES = 1024 * 1024
"""Least memory; a smaller number is one without its unit."""
MEMORY_MAX_BYTES = 1 << 46
SHARED_MEMORY_GB_MAX = float(MEMORY_MAX_BYTES >> 30)
RECORD_BYTES_MAX = 1024 * 1024
"""Largest text of a record."""
NOTIFY_MAX = 8
