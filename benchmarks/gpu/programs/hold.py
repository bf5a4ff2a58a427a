"""A process that has a context on a GPU, in stages that the caller asks for by lines of input.

    python hold.py --memory BYTES [--train] [--alone RUN]

Says ``context`` once it has one, with ``--train`` then ``step`` once it has trained a step, and
then ``round N`` after each line. ``--alone``: asks nothing and keeps what it has; RUN says whose
it is.
"""

from __future__ import annotations

import argparse
import time

from device import Gpu, import_torch, wait_for_word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--alone")
    options = parser.parse_args()
    gpu = Gpu(import_torch())
    gpu.take(options.memory)
    if options.alone:
        while True:
            time.sleep(1.0)
    wait_for_word("context")
    from network import Training

    training = Training(gpu) if options.train else None
    count = 0
    while True:
        loss = training.step() if training is not None else 0.0
        count += 1
        wait_for_word("step" if count == 1 and training is not None else f"round {count} {loss}")


if __name__ == "__main__":
    main()
