"""A fit of 10 steps, and after it 10 more by ``train_on_batch``, told one by one."""

import os
import signal

import keras
import numpy as np

STOP_AT = int(os.environ.get("STOP_AT", "0"))
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=8, epochs=2, verbose=0)
for count in range(1, 11):
    loss = model.train_on_batch(x[:8], y[:8])
    print(f"STEP {int(model.optimizer.iterations.numpy())} {float(loss):.9g}", flush=True)
    if count == STOP_AT:
        os.kill(os.getpid(), signal.SIGTERM)
