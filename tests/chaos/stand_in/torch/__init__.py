"""A stand-in for PyTorch, as far as a zygote looks: so that forks of a zygote train without it."""

from torch import cuda  # noqa: F401


class default_generator:  # PyTorch's name
    """Draws nothing."""

    @staticmethod
    def seed() -> int:
        """Seed nothing."""
        return 0


def manual_seed(_: int) -> None:
    """Seed nothing."""
