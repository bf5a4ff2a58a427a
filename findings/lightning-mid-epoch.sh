#!/usr/bin/env bash
# lightning 2.6.6: a checkpoint in mid-epoch keeps the batch number, and the loader begins at its first batch. Of 40
# samples a resume at batch 24 trains 16 again and the last 16 never, in that epoch.
. "$(dirname "$0")/parts/begin.sh"
install lightning==2.6.6 torch==2.15.0

cat >train.py <<'PY'
import warnings
from collections import Counter

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

warnings.filterwarnings("ignore")
seen = Counter()

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        seen[int(batch[0])] += 1
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)

def fit(steps, checkpoint=None):
    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(40, 1))
    trainer = L.Trainer(max_steps=steps, max_epochs=1, logger=False, accelerator="cpu", devices=1,
                        callbacks=[ModelCheckpoint(".", "at-{step}", every_n_train_steps=24)],
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(data, 1), ckpt_path=checkpoint)

fit(24)
fit(-1, "at-step=24.ckpt")
twice = sum(count == 2 for count in seen.values())
print(f"{sum(seen.values())} steps of 40 samples: {twice} trained twice, {40 - len(seen)} never")
PY
"$python" train.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
40 steps of 40 samples: 16 trained twice, 16 never
SEEN
