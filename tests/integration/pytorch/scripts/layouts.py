"""Changes tensors that are not strided, and prints whether another start is given their numbers."""

from __future__ import annotations

import io
import warnings
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils import prune

from reshape_sidecar.verdict.watch import Watch

warnings.simplefilter("ignore")  # sparse rows are a beta of PyTorch
ONES, TWOS = torch.ones(3, 3), 2 * torch.eye(3)
SCALE = (0.1, 0, torch.quint8)
VALUES = {
    "sparse": (ONES.to_sparse(), TWOS.to_sparse()),
    "rows": (ONES.to_sparse_csr(), TWOS.to_sparse_csr()),
    "columns": (ONES.to_sparse_csc(), TWOS.to_sparse_csc()),
    "quantized": (
        torch.quantize_per_tensor(ONES, *SCALE),
        torch.quantize_per_tensor(TWOS, *SCALE),
    ),
    "conjugate": (ONES.to(torch.complex64).conj(), (1j * TWOS).conj()),
    "negative": (ONES, (1j * TWOS).conj().imag),
    "nested": (torch.nested.nested_tensor([ONES]), torch.nested.nested_tensor([TWOS])),
}


def numbers(tensor: Any) -> Any:
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor.resolve_conj()


def watch(script: SimpleNamespace) -> Watch:
    return Watch(lambda reach: reach.root("script", script))


def outcome(first: Any, changed: Any) -> str:
    script, again = SimpleNamespace(value=first), SimpleNamespace(value=first)
    found = watch(script)
    found.begin()
    script.value = changed
    found.look(deep=True)
    file = io.BytesIO()
    torch.save(found.capture(), file)
    if list(found.reasons("remedy")):
        return "named"
    file.seek(0)
    watch(again).restore(torch.load(file, weights_only=True))
    return "back" if torch.equal(numbers(again.value), numbers(changed)) else "other"


def pruned() -> str:
    """Prune a layer, which gives its weights other names."""
    layer = torch.nn.Linear(2, 2)
    found = Watch(lambda reach: reach.model("layer", layer))
    found.begin()
    prune.l1_unstructured(layer, "weight", 0.5)
    found.look()
    return "named" if "names of weights" in str(list(found.reasons("remedy"))) else "other"


print("pruned", pruned())
for name, (first, changed) in VALUES.items():
    print(name, outcome(first, changed))
