"""Makes unseeded shuffles repeatable inside one job, so that a restart has the same order.

Does: gives ``Dataset.shuffle`` calls without a seed, and Keras's shuffle of arrays, a seed that is
derived from the job's seed in its checkpoints. Shuffles that the script seeds stay as they are. To
the script nothing changes: an unseeded order is as random as before, and differs in each epoch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from reshape_sidecar.hook import randomness


class JobShuffles:
    """The unseeded shuffles of this process, in the order in which the script makes them."""

    def __init__(self, job_seed: Callable[[], int]) -> None:
        self._job_seed = job_seed
        self.count = 0
        """Seeds used so far; a restart that skips a finished fit goes on from its count."""

    def seed_unseeded(self, tensorflow: Any) -> None:
        """Patch ``tf.data.Dataset.shuffle`` to seed calls without a seed."""
        dataset_class = tensorflow.data.Dataset
        original = dataset_class.shuffle

        @functools.wraps(original)
        def shuffle(
            dataset: Any, buffer_size: Any, seed: Any = None, *args: Any, **more: Any
        ) -> Any:
            if seed is None and tensorflow.executing_eagerly() and not randomness.globally_seeded():
                seed = self._next()
            return original(dataset, buffer_size, seed, *args, **more)

        dataset_class.shuffle = shuffle

    @contextlib.contextmanager
    def of_arrays(self, adapter: Any, tensorflow: Any) -> Iterator[list[Any]]:
        """Seed the permutation of an ArrayDataAdapter while it builds its dataset.

        Yields a list that afterwards holds the dataset whose iterators move the seed, if any.
        """
        sources: list[Any] = []
        if adapter._shuffle is not True or randomness.globally_seeded():
            yield sources
            return
        numbers = tensorflow.data.Dataset.random(seed=self._next(), rerandomize_each_iteration=True)
        salt = self._next()
        original = tensorflow.data.Dataset.range

        class Permuted:
            """Replaces ``Dataset.range(1)``: each iterator permutes the indices again."""

            def map(self, indices: Callable[[Any], Any]) -> Any:
                def permute(number: Any) -> Any:
                    return tensorflow.random.experimental.stateless_shuffle(
                        indices(number), seed=tensorflow.stack([number, salt])
                    )

                return numbers.take(1).map(permute)

        def ranged(*args: Any, **more: Any) -> Any:
            return Permuted() if args == (1,) else original(*args, **more)

        adapter._shuffle = False
        tensorflow.data.Dataset.range = ranged
        try:
            yield sources
        finally:
            adapter._shuffle = True
            tensorflow.data.Dataset.range = staticmethod(original)
        sources.append(numbers)

    def _next(self) -> int:
        self.count += 1
        text = f"{self._job_seed()}:{self.count}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
