#!/usr/bin/env bash
# transformers 5.24.0: Trainer's position is global_step modulo the steps per epoch of the new run. One process stops
# at step 100 of 128; two resume, with 64 steps: train() returns at once, with exit code 0 and no warning.
. "$(dirname "$0")/parts/begin.sh"
install transformers==5.24.0 accelerate==1.15.0 torch==2.15.0

cat >train.py <<'PY'
import os, sys

import torch
from transformers import Trainer, TrainingArguments

trained = 0

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x):
        global trained
        trained += len(x)
        return {"loss": self.layer(x).mean()}

steps = 100 if sys.argv[1] == "first" else -1
data = [{"x": [float(n)]} for n in range(512)]
arguments = TrainingArguments("run", per_device_train_batch_size=4, num_train_epochs=1, max_steps=steps, save_steps=100,
                              use_cpu=True, report_to=[], disable_tqdm=True)
trainer = Trainer(Model(), arguments, train_dataset=data)
result = trainer.train(resume_from_checkpoint=sys.argv[1] == "second")
if int(os.environ.get("RANK", 0)) == 0:
    print(f"{sys.argv[1]} run: step {trainer.state.global_step}, {trained} samples on this rank")
sys.stdout.flush()
os._exit(0)  # PyTorch 2.15 aborts at Python's end now and then, if there was a process group
PY
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
"$python" train.py first >out 2>log || { tail log; exit 1; }
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 train.py second >>out 2>>log || { tail log; exit 1; }
grep " run: " out >seen
expect seen <<'SEEN'
first run: step 100, 400 samples on this rank
second run: step 100, 0 samples on this rank
SEEN
