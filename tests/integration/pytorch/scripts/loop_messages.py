"""Prints what `job.batches` says to loaders, models and calls, and the verdicts of some bodies."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from reshape_sidecar import session
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook.exactness import Verdict
from reshape_sidecar.loop_origin import POSITION_FILE
from reshape_sidecar.pytorch.data import Share
from reshape_sidecar.pytorch.exact_notes import step_reasons
from reshape_sidecar.pytorch.loop_state import STATE_FILE, Parts, Position, saved_position

data = TensorDataset(torch.arange(5.0))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(())


def batches(loader: Any, **options: Any) -> None:
    job = session.start()
    list(job.batches(loader, model=model, optimizer=optimizer, **options))


def twice() -> None:
    job = session.start()
    for _ in job.epochs(1):
        for _ in range(2):
            list(job.batches(DataLoader(data), model=model, optimizer=optimizer))


def none() -> None:
    list(session.start().epochs(2))


def verdict(body: Callable[[], object], trains: Any = model) -> Verdict:
    job = session.start()
    found: list[Verdict] = []
    job.set_verdict = found.append  # type: ignore[method-assign, assignment]
    for _ in job.batches(DataLoader(data), model=trains, optimizer=optimizer, epochs=1):
        body()
        optimizer.step()
    return found[-1]


def learns(models: list[Any]) -> None:
    of_models = dict.fromkeys(weight for module in models for weight in module.parameters())
    Parts(models, torch.optim.SGD(of_models, lr=0.1), None, None).check(ranks=2)


def of_version(version: str | None) -> None:
    """Read a checkpoint that this version of torch has written; None: one that names none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Parts(model, optimizer, None, None).save(folder, Position(seed=1, samples=5, batch=3))
        fields = json.loads((folder / POSITION_FILE).read_text())
        assert saved_position(folder) == Position(seed=1, samples=5, batch=3)
        fields.pop("torch")
        named = {} if version is None else {"torch": version}
        (folder / POSITION_FILE).write_text(json.dumps({**named, **fields}))
        found = saved_position(folder)
        assert found is not None
        print(f"version {version}: goes on after batch {found.batch}")


def says(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (ValueError, CheckpointError) as error:
        print(f"{name}: {error}")


sampler = DistributedSampler(data, num_replicas=1, rank=0)
says("distributed sampler", lambda: batches(DataLoader(data, sampler=sampler), epochs=1))
says("iterable", lambda: batches(DataLoader(Endless()), epochs=1))
says("no batches", lambda: batches(DataLoader(data, batch_size=None), epochs=1))
says("a list", lambda: batches([1, 2], epochs=1))
says("last batch", lambda: Share(DataLoader(data, batch_size=2), 0, 2, 1).epoch(0, 0))
says("no length", lambda: batches(DataLoader(data)))
says("twice", twice)
says("no batches in the body", none)

of_version(None)
says("version 1.0.0", lambda: of_version("1.0.0"))

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
parallel, other = DistributedDataParallel(torch.nn.Linear(1, 1)), torch.nn.Bilinear(1, 1, 1)
says("no parallel model", lambda: learns([other]))
says("one parallel model of two", lambda: learns([parallel, other]))
learns([parallel, parallel.module])
learns([torch.compile(parallel)])
compiled = DistributedDataParallel(torch.compile(torch.nn.Linear(1, 1)))
for name, module in (("inside", compiled), ("outside", torch.compile(parallel))):
    with tempfile.TemporaryDirectory() as folder:
        Parts(module, optimizer, None, None).save(Path(folder), Position(seed=1, samples=5))
        print(f"compiled {name}: {sorted(torch.load(Path(folder) / STATE_FILE)['model'][0])}")


class Counter:
    """A compiler that counts the graphs that it gets."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


class Own(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def compiled_graphs(build: Callable[[Any], Any]) -> None:
    """Print how many graphs the compiler gets, and what the verdict says of it."""
    counter = Counter()
    module = build(counter)
    torch._dynamo.reset()
    reason = verdict(lambda: module(torch.ones(1, 1)), module).reason
    print(f"{build.__name__}: {bool(counter.graphs)}, {reason}")


def compiled_last(counter: Counter) -> Any:
    sequential = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    return torch.compile(DistributedDataParallel(sequential), backend=counter)


def compiled_first(counter: Counter) -> Any:
    sequential = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    return DistributedDataParallel(torch.compile(sequential, backend=counter))


def compiled_own(counter: Counter) -> Any:
    return torch.compile(DistributedDataParallel(Own()), backend=counter)


for build in (compiled_last, compiled_first, compiled_own):
    compiled_graphs(build)
dist.destroy_process_group()
bodies: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "torch": lambda: torch.rand(1),
    "python": random.random,
    "numpy": lambda: numpy.random.beta(1, 1),
}
for name, body in bodies.items():
    print(f"draws {name}: {verdict(body)}")


def autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(1, 1))


print(f"in half precision: {verdict(autocast)}")
layers = [torch.nn.SyncBatchNorm(1), torch.nn.BatchNorm1d(1), torch.nn.Dropout()]
print(f"of micro-batches: {[*step_reasons(layers, is_micro=True)]}")
