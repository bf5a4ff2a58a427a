"""Random state of the process: Python, NumPy, TensorFlow's eager context.

Does: captures and restores the generators that a callback or a layer of a script may draw from;
seeds Python's and NumPy's generators by the job's seed if the script has neither seeded nor used
them. The state inside a TensorFlow kernel (stateful random operations, shuffle buffers) is not
reachable here; ``position`` replays it if possible.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from typing import Any


def capture() -> dict[str, Any]:
    """Return the state of every readable generator as plain JSON values."""
    import numpy as np

    state: Any = np.random.get_state()
    kind, key, position, has_gauss, gauss = state
    out = {
        "python": _text(random.getstate()),
        "numpy": [kind, base64.b64encode(key.tobytes()).decode(), position, has_gauss, gauss],
    }
    rng = _eager_rng()
    if rng is not None:
        out["tensorflow"] = _text(rng.getstate())
    generator = _global_generator()
    if generator is not None:
        out["generator"] = generator.state.numpy().tolist()
    return out


def restore(saved: dict[str, Any]) -> None:
    """Restore the state that ``capture`` returned."""
    import numpy as np

    random.setstate(_state(saved["python"]))
    kind, key, position, has_gauss, gauss = saved["numpy"]
    words = np.frombuffer(base64.b64decode(key), np.uint32)
    np.random.set_state((kind, words, position, has_gauss, gauss))
    rng = _eager_rng()
    if "tensorflow" in saved and rng is not None:
        rng.setstate(_state(saved["tensorflow"]))
    generator = _global_generator()
    if "generator" in saved and generator is not None:
        generator.state.assign(saved["generator"])


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and TensorFlow with the job record's seed."""
    import keras

    keras.utils.set_random_seed(seed)


class StartupRandomness:
    """Python's and NumPy's generators until TensorFlow is imported.

    With the job's seed, a shuffled list of files or a random part for validation is the same in
    every process of the job, although the script sets no seed.
    """

    def __init__(self) -> None:
        self._python: object = random.getstate()
        self._numpy: Any = None
        self._used = True

    def numpy_imported(self, module: Any) -> None:
        """Note NumPy's state right after its import, as the system has seeded it."""
        self._numpy = _numpy_words(module)

    def tensorflow_begins(self) -> None:
        """Compare the states right before TensorFlow's import, which draws from Python's."""
        numpy = sys.modules.get("numpy")
        numpy_used = numpy is not None and self._numpy != _numpy_words(numpy)
        self._used = numpy_used or self._python != random.getstate()

    def seed(self, number: int) -> None:
        """Seed both unless the script has used one of them."""
        import numpy as np

        if not self._used:
            random.seed(number)
            np.random.seed(number)


def _numpy_words(module: Any) -> Any:
    state = module.random.get_state(legacy=False)
    words = [bytes(one) if hasattr(one, "dtype") else one for one in state["state"].values()]
    return state["bit_generator"], words


def globally_seeded() -> bool:
    """Return whether the script has set TensorFlow's global seed."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module is not None and module.global_seed() is not None


def _text(state: tuple[Any, ...]) -> str:
    version, numbers, gauss = state
    return json.dumps([version, " ".join(format(number, "x") for number in numbers), gauss])


def _state(text: str) -> tuple[Any, ...]:
    version, numbers, gauss = json.loads(text)
    return (version, tuple(int(number, 16) for number in numbers.split()), gauss)


def _eager_rng() -> random.Random | None:
    """Return the generator that numbers TensorFlow's operations under a global seed."""
    module = sys.modules.get("tensorflow.python.eager.context")
    rng = getattr(module.context(), "_rng", None) if module is not None else None
    return rng if isinstance(rng, random.Random) else None


def _global_generator() -> Any:
    """Return TensorFlow's global generator if the script has one; a getter would create it."""
    module = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    return getattr(module, "global_generator", None) if module is not None else None
