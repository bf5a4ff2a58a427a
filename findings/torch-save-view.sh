#!/usr/bin/env bash
# torch 2.15.0 with safetensors 0.8.0: torch.save of a small view writes the whole storage behind it; safetensors
# writes the view. A checkpoint that keeps the last row of a buffer for each step fills the disk.
. "$(dirname "$0")/parts/begin.sh"
install torch==2.15.0 safetensors==0.8.0 numpy==2.4.6

cat >save.py <<'PY'
import os

import torch
from safetensors.torch import save_file

view = torch.zeros(1_000_000)[:10]
torch.save({"view": view}, "view.pt")
save_file({"view": view}, "view.safetensors")
for name in ("view.pt", "view.safetensors"):
    print(name, "more than 1 MB" if os.path.getsize(name) > 1_000_000 else "less than 1 KB")
PY
"$python" save.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
view.pt more than 1 MB
view.safetensors less than 1 KB
SEEN
