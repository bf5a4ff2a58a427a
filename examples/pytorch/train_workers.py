"""The loop of train.py over the workers of a job (`workers: 2`), a container for each.

torchrun --nproc-per-node=2 train_workers.py --epochs 4
"""

import os
import sys

from train import main, parser

from reshape_sidecar import session

if __name__ == "__main__":
    main(session.start(save_every_steps=50), parser.parse_args())
    sys.stdout.flush()
    # PyTorch 2.15 keeps the threads of a process group and aborts now and then as Python ends.
    os._exit(0)
