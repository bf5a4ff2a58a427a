#!/usr/bin/env bash
# accelerate 1.15.0: load_state with more processes than save_state had. The new rank finds no random states, keeps
# its own and says nothing; all that the log has is "All random states loaded successfully", of rank 0.
. "$(dirname "$0")/parts/begin.sh"
install accelerate==1.15.0 torch==2.15.0

cat >state.py <<'PY'
import logging, os, sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

class Said(logging.Handler):
    def emit(self, record):
        if "andom states" in record.getMessage():
            said.append(record.getMessage())

said = []
accelerator = Accelerator(cpu=True)
accelerator.prepare(torch.nn.Linear(1, 1))
if sys.argv[1] == "save":
    set_seed(1, device_specific=True)
    accelerator.save_state("saved")
else:
    logging.getLogger("accelerate").addHandler(Said())
    logging.getLogger("accelerate").setLevel(logging.INFO)
    set_seed(99, device_specific=True)
    before = torch.get_rng_state()
    accelerator.load_state("saved")
    kept = torch.equal(before, torch.get_rng_state())
    with open(f"rank-{accelerator.process_index}", "w") as file:
        print(f"rank {accelerator.process_index}: keeps its own {kept}, says {said[-1:]}", file=file)
sys.stdout.flush()
os._exit(0)  # PyTorch 2.15 aborts at Python's end now and then, if there was a process group
PY
export OMP_NUM_THREADS=1 ACCELERATE_USE_CPU=true
"$python" state.py save >log 2>&1 || { tail log; exit 1; }
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 state.py load >>log 2>&1 || { tail log; exit 1; }
cat rank-* >seen
expect seen <<'SEEN'
rank 0: keeps its own False, says ['[RANK 0] All random states loaded successfully']
rank 1: keeps its own True, says []
SEEN
