#!/usr/bin/env bash
# torch 2.15.0: torch.distributed.checkpoint shares plain tensors out among the ranks that save, for each holds them
# all. BatchNorm's statistics differ between ranks: the mean of one rank is saved beside the variance of the other.
. "$(dirname "$0")/parts/begin.sh"
install torch==2.15.0 numpy==2.4.6

cat >save.py <<'PY'
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
rank = dist.get_rank()
norm = torch.nn.BatchNorm1d(4)
norm.running_mean.fill_(float(rank))
norm.running_var.fill_(float(rank))
dcp.save(norm.state_dict(), checkpoint_id="saved")
dist.destroy_process_group()
if rank == 0:
    found = torch.nn.BatchNorm1d(4).state_dict()
    dcp.load(found, checkpoint_id="saved")
    ranks = [int(found[name][0]) for name in ("running_mean", "running_var")]
    print("mean and variance are of one rank:", ranks[0] == ranks[1])
PY
OMP_NUM_THREADS=1 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 save.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
mean and variance are of one rank: False
SEEN
