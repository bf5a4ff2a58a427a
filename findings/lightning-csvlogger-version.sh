#!/usr/bin/env bash
# lightning 2.6.6: CSVLogger with a fixed version, the way to keep one folder over restarts. A run that goes on from
# a checkpoint at step 10 replaces metrics.csv: the rows of steps 1 to 10 are gone.
. "$(dirname "$0")/parts/begin.sh"
install lightning==2.6.6 torch==2.15.0

cat >train.py <<'PY'
import csv, warnings

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger

warnings.filterwarnings("ignore")

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = self.layer(batch[0]).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(steps, checkpoint=None):
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 4)), 1)
    logger = CSVLogger(".", name="run", version="fixed")
    trainer = L.Trainer(max_steps=steps, logger=logger, log_every_n_steps=1, accelerator="cpu", devices=1,
                        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    trainer.fit(Model(), data, ckpt_path=checkpoint)
    trainer.save_checkpoint("last.ckpt")
    with open("run/fixed/metrics.csv") as file:
        rows = [row["step"] for row in csv.DictReader(file)]
    print(f"up to {steps}: {len(rows)} rows, from step {rows[0]}")

fit(10)
fit(20, "last.ckpt")
PY
"$python" train.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
up to 10: 10 rows, from step 0
up to 20: 10 rows, from step 10
SEEN
