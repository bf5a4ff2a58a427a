"""What it costs to look at the state that a PyTorch script keeps beside its model.

    .venv-pytorch/bin/python benchmarks/state_looks.py [--looks 200]

Builds a ``transformers.Trainer`` with a subclass, two callbacks, a dataset and some 200 modules,
with 1 MB and with 1 GB of weights, in turns, and times one look. The cost a step is that of the
looks that a process makes in its first 1,000 steps of 20 ms: two before the first step, six around
micro-batches, three after steps, one at each of ten epochs and one at a save each half a minute.
It also prints a look at a save with a copy of the weights in a callback (an average), whose bytes
are compared whole.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sidecar"))

from reshape_sidecar.pytorch import hf_verdict
from reshape_sidecar.verdict.watch import Watch

STEPS, STEP_S, EPOCHS, SAVES = 1000, 0.020, 10, 1
SHALLOW = 2 * 3 + 3 + EPOCHS
"""Looks of a process in its first steps, but for those that compare everything."""
DEEP = 2 + SAVES
LAYERS = 100
WIDTHS = {"1 MB": 51, "1 GB": 1638}


def trainer(width: int) -> Any:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.x = torch.zeros(1000, width)
            self.level = 0.0

        def __len__(self) -> int:
            return len(self.x)

    class History(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.losses = [0.5] * 500

    class Average(TrainerCallback):  # type: ignore[misc]
        copy: Any = None

    class Own(Trainer):  # type: ignore[misc]
        seen = 0

    layers = [
        nn.Sequential(nn.Linear(width, width, bias=False), nn.Dropout(0.1)) for _ in range(LAYERS)
    ]
    arguments = TrainingArguments("out", use_cpu=True, report_to=[], save_strategy="no")
    made = Own(
        nn.Sequential(*layers), arguments, train_dataset=Data(), callbacks=[History(), Average()]
    )
    made.create_optimizer()
    return made


def watch_of(made: Any) -> Watch:
    watch = Watch(lambda reach: hf_verdict.enter(made, reach))
    watch.begin()
    return watch


def average_of(made: Any) -> Any:
    return next(one for one in made.callback_handler.callbacks if type(one).__name__ == "Average")


def timed_s(call: Any) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--looks", type=int, default=200)
    looks = parser.parse_args().looks
    trainers = {size: trainer(width) for size, width in WIDTHS.items()}
    watches = {size: watch_of(made) for size, made in trainers.items()}
    shallow: dict[str, list[float]] = {size: [] for size in trainers}
    deep: dict[str, list[float]] = {size: [] for size in trainers}
    for _ in range(looks):
        for size, watch in watches.items():
            shallow[size].append(timed_s(watch.look))
    for _ in range(looks // 10):
        for size, watch in watches.items():
            deep[size].append(timed_s(functools.partial(watch.look, deep=True)))
    for size in trainers:
        median_s, worst_s = statistics.median(shallow[size]), max(shallow[size])
        a_step_ms = 1e3 * (SHALLOW * median_s + DEEP * statistics.median(deep[size])) / STEPS
        print(
            f"{size} of weights: a look {1e3 * median_s:.2f} ms (most {1e3 * worst_s:.1f}), at a"
            f" save {1e3 * statistics.median(deep[size]):.2f} ms; {a_step_ms:.3f} ms a step of"
            f" {1e3 * STEP_S:g} ms over {STEPS} steps"
        )
    pairs = zip(shallow["1 GB"], shallow["1 MB"], strict=True)
    print(f"1 GB as a part of 1 MB: {statistics.median(big / small for big, small in pairs):.3f}")
    for size, made in trainers.items():
        average_of(made).copy = copy.deepcopy(made.model)
        took_s = timed_s(functools.partial(watches[size].look, deep=True))
        print(f"{size} in a callback as well: a look at a save {1e3 * took_s:.1f} ms")


if __name__ == "__main__":
    main()
