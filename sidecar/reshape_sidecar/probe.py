"""The GPUs that can be seen from here, as one JSON document.

Runs in a short pod on each node, and in a job's container in which a launcher checks whether GPUs
are free (``python -I -S PATH/probe.py [FILE]``; without FILE it prints).
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reshape_sidecar import codec, gpu


def main(words: list[str]) -> int:
    """Write the inventory to the file that is named, or print it; 0."""
    text = codec.dumps(gpu.inventory())
    if words:
        Path(words[0]).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
