"""What a Lightning Trainer makes of ``devices`` and ``strategy``: all processes of the job.

Does: reads a number of devices above one, and strategies of several processes, as "what the job
has", because the SideCar has started the processes already. ``devices=1`` stays one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STARTS = ("_spawn", "_fork", "_notebook")
"""Parts of names of DDP strategies that start processes themselves."""
GPU_NAMES = ("gpu", "cuda")


class FitError(ValueError):
    """A fit that cannot be made on the job's GPUs; the message says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The arguments of a Trainer, and why it is not elastic; None: it is."""

    arguments: dict[str, Any]
    reason: str | None = None


def choice(arguments: dict[str, Any], ranks: int, *, simulated: bool, module: Any) -> Choice:
    """Return the arguments for ``ranks`` processes.

    ``module``: Lightning's ``accelerator_connector``.
    """
    devices = arguments.get("devices", "auto")
    strategy = arguments.get("strategy", "auto")
    if arguments.get("num_nodes", 1) != 1:
        return Choice(arguments, f"Trainer(num_nodes={arguments['num_nodes']}) is not elastic")
    if _is_one(devices):
        return Choice(
            arguments,
            f"Trainer(devices={devices!r}) uses one device: write devices='auto', or"
            " `processes: one` in the job's record",
        )
    chosen = _strategy(strategy, module)
    if chosen is None:
        name = strategy if isinstance(strategy, str) else type(strategy).__name__
        return Choice(
            arguments,
            f"Trainer(strategy={name!r}) is not elastic: write strategy='ddp' or 'auto'",
        )
    accelerator = arguments.get("accelerator", "auto")
    if simulated and accelerator in GPU_NAMES:
        accelerator = "cpu"
    plugins = _listed(arguments.get("plugins"))
    environments = [one for one in plugins if isinstance(one, module.ClusterEnvironment)]
    own = getattr(chosen, "cluster_environment", None)
    if not environments and own is None:
        plugins.append(module.LightningEnvironment())
    changes = {"accelerator": accelerator, "strategy": chosen, "plugins": plugins}
    return Choice({**arguments, **changes, "devices": ranks})


def _is_one(devices: Any) -> bool:
    if isinstance(devices, list | tuple):
        return len(devices) == 1
    return str(devices).strip(", ") == "1" or (
        isinstance(devices, str) and devices.strip(", ").isdigit() and devices.rstrip()[-1:] == ","
    )


def _strategy(strategy: Any, module: Any) -> Any:
    """Return the strategy that uses the processes that are there; None if it is not DDP."""
    if strategy == "auto":
        return "ddp"
    if isinstance(strategy, str):
        name = strategy.lower()
        for start in STARTS:
            name = name.replace(start, "")
        return name if name.split("_")[0] == "ddp" else None
    if type(strategy) is not module.DDPStrategy:
        return None
    strategy._start_method = "popen"
    return strategy


def _listed(plugins: Any) -> list[Any]:
    if plugins is None:
        return []
    return list(plugins) if isinstance(plugins, list | tuple) else [plugins]
