"""What is simulated where there are no GPUs: the pace of steps, and declared costs of containers.

Does: checks the two settings. Never: lets one of them reach a machine with real GPUs, or anything
that decides. State: none.
"""

from __future__ import annotations

from pathlib import Path

from reshape_controller.cli.config import Config
from reshape_controller.cli.exits import Exit, failed
from reshape_launcher.declared import ContainerCosts
from reshape_profiles.loader import ProfileError, bundled
from reshape_sidecar import device_truth as truth


def truth_file(config: Config) -> Path | None:
    """The device truth, readable; None: steps are not paced. Raises CliError."""
    name = config.text("device_truth")
    if name is None:
        return None
    where = config.source("device_truth")
    if config.number("simulated_gpus") is None:
        what = "a device truth paces simulated GPUs, and none are asked for"
        raise failed(Exit.USAGE, what, where, "add --simulated-gpus N, or leave it out")
    path = Path(name).expanduser().absolute()
    try:
        truth.load(path)
    except truth.DeviceTruthError as error:
        remedy = 'write {"seconds_per_step": {"JOB_TYPE": {"1": 0.2}}}'
        raise failed(Exit.USAGE, str(error), where, remedy) from None
    return path


def container_costs(config: Config) -> ContainerCosts | None:
    """``SET`` or ``SET:SCALE``, in seconds; None: nothing is declared. Raises CliError."""
    text = config.text("container_costs")
    if text is None:
        return None
    where = config.source("container_costs")
    if config.number("simulated_gpus") is None:
        what = "container costs are declared for simulated GPUs, and none are asked for"
        raise failed(Exit.USAGE, what, where, "add --simulated-gpus N, or leave it out")
    name, _, scale = text.partition(":")
    try:
        overhead = bundled().with_costs(name).overhead
        factor = float(scale or "1")
        if overhead is None or not 0 < factor <= 1:
            raise ValueError
        return ContainerCosts(
            f"assumed:{text}", overhead.job_init_s * factor, overhead.job_stop_s * factor
        )
    except ProfileError as error:
        raise failed(Exit.USAGE, str(error), where, "name a set of costs") from None
    except ValueError:
        what = f"{text!r} is no set of costs with a scale from 0 to 1"
        raise failed(Exit.USAGE, what, where, "for example paper:0.1") from None
