#!/usr/bin/env bash
# schedulefree 1.4.1 with torch 2.15.0: get_state_dict and set_state_dict of torch.distributed.checkpoint drop z and
# exp_avg_sq of an optimizer whose train() was called: after a resume the first loss is right, later ones are not. The
# optimizer's own state_dict goes on to the last digit.
. "$(dirname "$0")/parts/begin.sh"
install schedulefree==1.4.1 torch==2.15.0 numpy==2.4.6

cat >train.py <<'PY'
import copy

import torch
import torch.distributed.checkpoint as dcp
from schedulefree import AdamWScheduleFree
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

def begin():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = AdamWScheduleFree(model.parameters(), lr=0.1)
    optimizer.train()
    return model, optimizer

def losses(model, optimizer, count):
    found = []
    for step in range(count):
        optimizer.zero_grad()
        loss = ((model(torch.ones(2, 4) * (1 + step % 3)) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

model, optimizer = begin()
losses(model, optimizer, 5)
own = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
dcp.save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer))), checkpoint_id="saved")
straight = losses(model, optimizer, 5)

model, optimizer = begin()
model.load_state_dict(own[0])
optimizer.load_state_dict(own[1])
optimizer.train()
print("its own state_dict:", losses(model, optimizer, 5) == straight)

model, optimizer = begin()
saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
dcp.load(saved, checkpoint_id="saved")
set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
optimizer.train()
again = losses(model, optimizer, 5)
print("by distributed checkpoint: first loss", again[0] == straight[0], "later ones", again[1:] == straight[1:])
PY
"$python" train.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
its own state_dict: True
by distributed checkpoint: first loss True later ones False
SEEN
