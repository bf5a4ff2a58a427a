#!/usr/bin/env bash
# keras 3.15.1 with tensorflow-cpu 2.21.0: BackupAndRestore(save_freq=10) is killed at batch 15 of an epoch of 20. Its
# metadata has the batch, but the second fit begins the epoch at batch 0: the batches before are trained twice.
. "$(dirname "$0")/parts/begin.sh"
install keras==3.15.1 tensorflow-cpu==2.21.0

cat >train.py <<'PY'
import json, os, sys

import keras
import numpy as np

class Note(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        with open("batches", "a") as file:
            file.write(f"{sys.argv[1]} {batch}\n")
        if sys.argv[1] == "first" and batch == 15:
            os._exit(9)

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
x = np.ones((20, 4), "float32")
model.fit(x, np.ones(20), batch_size=1, epochs=1, shuffle=False, verbose=0,
          callbacks=[keras.callbacks.BackupAndRestore("backup", save_freq=10), Note()])
PY
export TF_CPP_MIN_LOG_LEVEL=3
"$python" train.py first 2>log || true
metadata=$(cat backup/training_metadata.json)
"$python" train.py second 2>>log
{
    echo "metadata $metadata"
    echo "second run: $(grep second batches | head -1), $(grep -c second batches) batches"
} >seen
expect seen <<'SEEN'
metadata {"epoch": 0, "batch": 9}
second run: second 0, 20 batches
SEEN
