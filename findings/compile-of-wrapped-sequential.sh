#!/usr/bin/env bash
# torch 2.15.0: torch.compile of DistributedDataParallel around an nn.Sequential hands the compiler no graph, with no
# word; without DDP, or of a module of one's own, it does. A script that wraps in DDP above one GPU loses its compiler.
. "$(dirname "$0")/parts/begin.sh"
install torch==2.15.0 numpy==2.4.6

cat >compile.py <<'PY'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
graphs = 0

def count(graph, _):
    global graphs
    graphs += 1
    return graph.forward

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        return self.layers(x)

plain = Own().layers
for name, module in (("Sequential", plain), ("DDP(Sequential)", DistributedDataParallel(Own().layers)),
                     ("DDP(Module)", DistributedDataParallel(Own()))):
    torch._dynamo.reset()
    graphs = 0
    torch.compile(module, backend=count)(torch.ones(2, 4)).sum().backward()
    print(name, "compiled" if graphs else "not compiled")
dist.destroy_process_group()
PY
OMP_NUM_THREADS=1 "$python" -m torch.distributed.run --standalone --nproc-per-node 1 compile.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
Sequential compiled
DDP(Sequential) not compiled
DDP(Module) compiled
SEEN
