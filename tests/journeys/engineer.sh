#!/usr/bin/env bash
# An ML engineer reshapes a script of their own (README, "Reshape your own script").
# Needs TensorFlow. It ends with a script that trained on four GPUs, then on two, without an edit.
LIMIT_S=420
. "$(dirname "$(realpath "$0")")/start.sh"
job=my-job

step "writes a plain Keras script"
cat >train.py <<'PY'
import sys

import keras
import numpy as np
import tensorflow as tf

samples = np.random.default_rng(0).normal(size=(64_000, 32)).astype("float32")
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
model.fit(samples, samples.sum(axis=1), batch_size=64, epochs=int(sys.argv[1]), verbose=2)
PY

step "writes a job record beside it"
cat >my-job.yaml <<'YAML'
name: my-job
command: python train.py {epochs}
optional_gpus: [1, 2, 4]
epochs: 12
YAML

step "starts the daemon"
up --simulated-gpus 4

step "submits"
reshape submit my-job.yaml
await phase running
check size 4

step "trains on four GPUs; writes a record for another job, which wants two"
cat >second.yaml <<'YAML'
name: second
command: python train.py {epochs}
optional_gpus: [2]
epochs: 2
max_wait_s: 10
YAML
reshape submit second.yaml
await reshape_downs 1
await phase running
check size 2
step "both train on two GPUs"
reshape get
reshape explain second

step "looks at what the reshape cost"
reshape describe my-job
reshape logs my-job
await state completed
check steps_lost 0
check container_restarts 0
reshape timeline
step "ok: reshaped in one container, and no step was lost"
