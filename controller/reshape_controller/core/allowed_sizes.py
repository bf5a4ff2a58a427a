"""The numbers of GPUs that a plan may give a job. Pure."""

from __future__ import annotations


def allowed(
    optional: tuple[int, ...], struck: tuple[int, ...], only: int | None, uses: int
) -> tuple[int, ...]:
    """Return those of the ``optional`` numbers that are not ``struck``: ``only`` one of them, if
    that is given; else none beyond the least at which a program has all GPUs that it ``uses`` (0:
    any number)."""
    sizes = tuple([size for size in optional if size not in struck and only in (None, size)])
    enough = [size for size in sizes if size >= uses]
    if not uses or only is not None or not enough:
        return sizes
    return tuple([size for size in sizes if size <= enough[0]])
