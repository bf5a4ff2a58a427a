"""Random state of the process: Python, NumPy, TensorFlow's eager context.

Does: captures and puts back the generators that a callback or a layer of a script may draw from.
Never: seeds one by itself. State: none. What lives inside a TensorFlow kernel (stateful random
operations, shuffle buffers) is not reachable here; the data position replays it where it can.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from reshape_sidecar.hook.values import Reader, Writer


def capture(writer: Writer) -> dict[str, Any]:
    """Encoded state of every generator that can be read."""
    import numpy as np

    out = {
        "python": writer.encode(random.getstate()),
        "numpy": writer.encode(np.random.get_state()),
    }
    context = _context()
    rng = getattr(context, "_rng", None)
    if isinstance(rng, random.Random):
        out["tensorflow"] = writer.encode(rng.getstate())
    generator = _global_generator()
    if generator is not None:
        out["generator"] = writer.encode(generator.state.numpy())
    return out


def restore(saved: dict[str, Any], reader: Reader) -> None:
    """Put back what ``capture`` found."""
    import numpy as np

    random.setstate(reader.decode(saved["python"]))
    np.random.set_state(reader.decode(saved["numpy"]))
    rng = getattr(_context(), "_rng", None)
    if "tensorflow" in saved and isinstance(rng, random.Random):
        rng.setstate(reader.decode(saved["tensorflow"]))
    generator = _global_generator()
    if "generator" in saved and generator is not None:
        generator.state.assign(reader.decode(saved["generator"]))


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and TensorFlow, because the job record asks for it."""
    import keras

    keras.utils.set_random_seed(seed)


def globally_seeded() -> bool:
    """Whether the script has set TensorFlow's global seed."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module is not None and module.global_seed() is not None


def _context() -> Any:
    module = sys.modules.get("tensorflow.python.eager.context")
    return module.context() if module is not None else None


def _global_generator() -> Any:
    """``tf.random.get_global_generator()`` if the script has one; asking would make one."""
    module = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    return getattr(module, "global_generator", None) if module is not None else None
